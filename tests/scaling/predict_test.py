import unittest

import predict

STEP = {"step_ms": 7.25, "communication_ms": 0.25}  # 70 us an image
GRADIENT = 116144  # bytes


class Predictions(unittest.TestCase):
    def test_ethernet_at_64_ranks_by_hand(self):
        # Rabenseifner: 12 x 30 us + 2 x 63/64 x 92.9152 us = 542.9268 us; recursive doubling takes 737.
        rows = {row[:3]: row[3:] for row in predict.predictions(STEP, GRADIENT)}
        seconds, (weak, weak_efficiency), (strong, strong_efficiency) = rows["CPU", "Ethernet", 64]
        self.assertAlmostEqual(seconds, 542.9268e-6, delta=1e-10)
        self.assertAlmostEqual(weak, 7.5429268e-3, delta=1e-10)
        self.assertAlmostEqual(weak_efficiency, 7 / 7.5429268, delta=1e-7)
        self.assertAlmostEqual(strong, 5.0229268e-3, delta=1e-10)  # 64 images a rank
        self.assertAlmostEqual(strong_efficiency, 4.48 / 5.0229268, delta=1e-7)

    def test_one_rank_is_fully_efficient_and_more_ranks_are_less_so(self):
        last = {}
        for device, network, ranks, _, (_, weak), (_, strong) in predict.predictions(STEP, GRADIENT):
            if ranks == 1:
                self.assertEqual((weak, strong), (1.0, 1.0))
            else:
                self.assertLess(weak, last[device, network][0])
                self.assertLess(strong, last[device, network][1])
            last[device, network] = weak, strong

    def test_a_gpu_step_is_never_shorter_than_the_starts_of_its_kernels(self):
        self.assertGreaterEqual(predict.gpu_seconds(1), 28e-6)  # of 28 kernels, each at least 1 us
        self.assertLess(predict.gpu_seconds(1), predict.gpu_seconds(predict.BATCH))


if __name__ == "__main__":
    unittest.main()
