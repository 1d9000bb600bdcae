import random
import unittest
from functools import partial

import model
import simulate

ALPHA, BETA = LINK = 3e-6, 1 / 5e9
SIZES = [1 << k for k in range(10, 25)]


class Formulas(unittest.TestCase):
    def test_one_rank_needs_no_time(self):
        for algorithm in simulate.ALGORITHMS:
            self.assertEqual(model.all_reduce(algorithm, 1, 1 << 20, LINK), 0.0)

    def test_nothing_to_send_costs_the_latency_of_each_message(self):
        for algorithm, messages in (("ring", 14), ("recursive_doubling", 3), ("rabenseifner", 6)):
            self.assertAlmostEqual(model.all_reduce(algorithm, 8, 0, LINK), messages * ALPHA, delta=1e-18)

    def test_ring_and_rabenseifner_send_large_messages_twice_whatever_the_ranks(self):
        for algorithm in ("ring", "rabenseifner"):
            seconds = model.all_reduce(algorithm, 1 << 12, 1 << 40, LINK)
            self.assertAlmostEqual(seconds / (2 * (1 << 40) * BETA), 1.0, delta=1e-3)

    def test_recursive_doubling_sends_all_in_each_round(self):
        seconds = model.all_reduce("recursive_doubling", 8, 1000, LINK)
        self.assertAlmostEqual(seconds, 9.6e-6, delta=1e-18)  # 3 x (3 us + 1000 B x 0.2 ns/B)

    def test_two_levels_are_one_within_a_node(self):
        network = {"node": 8, "inside": (1e-6, 1e-11), "between": (ALPHA, BETA)}
        self.assertAlmostEqual(model.two_level(8, 0, network), 3e-6, delta=1e-18)
        self.assertAlmostEqual(model.two_level(16, 0, network), 3e-6 + ALPHA, delta=1e-18)


class Fit(unittest.TestCase):
    def test_exact_times_give_the_constants(self):
        for algorithm in simulate.ALGORITHMS:
            times = [(n, model.all_reduce(algorithm, 4, n, LINK)) for n in SIZES]
            alpha, beta = model.fit(algorithm, 4, times)
            self.assertAlmostEqual(alpha / ALPHA, 1.0, delta=1e-9)
            self.assertAlmostEqual(beta / BETA, 1.0, delta=1e-9)

    def test_five_percent_of_noise_costs_at_most_ten_percent(self):
        # 15 times, of which about half tell each constant: a standard error near 5 % / sqrt(7) = 2 %.
        noise = random.Random(1)
        for _ in range(100):
            times = [(n, model.all_reduce("ring", 4, n, LINK) * noise.gauss(1, 0.05)) for n in SIZES]
            alpha, beta = model.fit("ring", 4, times)
            self.assertAlmostEqual(alpha / ALPHA, 1.0, delta=0.1)
            self.assertAlmostEqual(beta / BETA, 1.0, delta=0.1)

    def test_a_constant_is_never_negative(self):
        alpha, beta = model.fit("ring", 4, [(1000, 1e-6), (2000, 4e-6)])
        self.assertEqual(alpha, 0.0)
        self.assertGreater(beta, 0.0)


ETHERNET = {"node": 1, "inside": (30e-6, 1 / 1.25e9), "between": (30e-6, 1 / 1.25e9)}
NODES_OF_FOUR = {"node": 4, "inside": (5e-6, 1 / 400e9), "between": (2e-6, 1 / 50e9)}


@unittest.skipUnless(simulate.is_available(), "smpirun or smpicxx is missing (Debian: libsimgrid-dev)")
class Simulation(unittest.TestCase):
    def test_sixteen_ranks_take_the_time_of_the_formula(self):
        size = 1 << 17  # falls into equal parts
        for network in (ETHERNET, NODES_OF_FOUR):
            for algorithm in simulate.ALGORITHMS:
                step = simulate.step_seconds(16, algorithm, network, size, 1000)
                formula = model.two_level(16, size, network, partial(model.all_reduce, algorithm))
                self.assertAlmostEqual((step - 1e-3) / formula, 1.0, delta=0.01)


if __name__ == "__main__":
    unittest.main()
