"""The arithmetic of the benchmark's tables, and the guard's judgement of counts."""
import unittest

import instruction_count
import run
import table


def case(ranks, threads, images_per_s, pytorch, batch=100, isa="native", **ours):
    return {
        **run.Case(ranks, threads, batch, isa)._asdict(),
        "convnet": {"images_per_s": images_per_s, "share_of_peak": 0.8, "peak_memory_mb": 115.0, "data_set_mb": 55.0}
        | ours,
        "pytorch": {name: {"images_per_s": rate} for name, rate in pytorch.items()},
    }


RESULT = {
    "start_up": {"first_step_seconds": 0.31},
    "cases": [
        case(1, 1, 1000.0, {"nchw": 400.0, table.TUTORIAL: 200.0}),
        case(1, 2, 1800.0, {"nchw": 600.0}),
        case(2, 1, 1920.0, {"nchw": 500.0, "channels_last": 640.0, table.TUTORIAL: 480.0}),
        case(1, 1, 900.0, {"nchw": 450.0}, batch=32),
    ],
}


class Goals(unittest.TestCase):
    def test_each_is_measured_against_its_own_rival(self):
        figures = [goal.figure for goal in table.goals(RESULT)]
        # 1000 / 400; 1800 / 640, DDP's on as many cores; 1920 / 640; 1920 / 480; share; 1920 / 2000; start; 115 - 55
        for figure, expected in zip(figures, [2.5, 2.8125, 3.0, 4.0, 0.8, 0.96, 0.31, 60.0], strict=True):
            self.assertAlmostEqual(figure, expected, delta=1e-12)

    def test_a_bound_that_is_met_exactly_is_reached(self):
        verdicts = [goal.verdict() for goal in table.goals(RESULT)]
        self.assertEqual(verdicts, ["reached"] * 2 + ["missed"] + ["reached"] * 3 + ["missed", "reached"])

    def test_what_was_not_measured_is_neither_reached_nor_missed(self):
        alone = {**RESULT, "cases": RESULT["cases"][:1]}
        verdicts = [goal.verdict() for goal in table.goals(alone)]
        self.assertEqual([v == "not measured" for v in verdicts], [False] + [True] * 3 + [False, True, False, True])

    def test_another_batch_has_rivals_of_its_own(self):
        times, name = table.best(RESULT, RESULT["cases"][3])
        self.assertEqual((times, name), (2.0, "1 x 1, nchw"))


class Cases(unittest.TestCase):
    def test_batch_and_instruction_set_may_be_left_out(self):
        self.assertEqual(run.Case.parse("2x4"), (2, 4, 100, "native"))
        self.assertEqual(run.Case.parse("1x1:32"), (1, 1, 32, "native"))
        self.assertEqual(run.Case.parse("1x1:100:avx2"), (1, 1, 100, "avx2"))

    def test_extra_cases_meet_the_two_fastest_settings(self):
        self.assertEqual(run.two_fastest(RESULT["cases"], run.Case(2, 1, 32)), ["channels_last", "nchw"])


class Guard(unittest.TestCase):
    RECORDED = {"instructions": 100_000, "parts": {"linear": 1_000, "rest": 99_000}}

    def test_three_per_cent_more_pass_and_a_little_more_fails(self):
        for total, code in ((103_000, 0), (103_001, 1)):
            parts = {"linear": 1_000, "rest": 99_000}
            self.assertEqual(instruction_count.verdict(total, parts, self.RECORDED)[0], code)

    def test_a_part_that_grew_fails_though_the_step_hardly_did(self):
        for linear, code in ((1_200, 0), (1_201, 1)):  # 0.2 % of a step are let be
            parts = {"linear": linear, "rest": 99_000}
            found, text = instruction_count.verdict(99_000 + linear, parts, self.RECORDED)
            self.assertEqual((found, "linear" in text), (code, code == 1))

    def test_fewer_pass_and_ask_to_be_recorded(self):
        code, text = instruction_count.verdict(90_000, {"linear": 500, "rest": 89_500}, self.RECORDED)
        self.assertEqual(code, 0)
        self.assertIn("--renew", text)

    def test_a_part_counts_each_of_its_functions_once(self):
        annotated = """\
1,000 (100.0%)  PROGRAM TOTALS
  300 (30.00%)  ???:convnet::cpu::Linear::forward(int, float const*) [/build/convnet_benchmark]
  290 (29.00%)  ???:convnet::cpu::Linear::forward(int, float const*) [clone ._omp_fn.0] [/build/convnet_benchmark]
  100 (10.00%)  linear.cpp:convnet::cpu::Linear::backward(int) [/build/convnet_benchmark]
   50 ( 5.00%)  ???:convnet::cpu::(anonymous namespace)::CpuReplica::update(convnet::UpdateRule const&) [/build/x]
   40 ( 4.00%)  ???:void convnet::cpu::for_each_image<convnet::cpu::Linear::forward(int)::{lambda(int)#1}>(int) [/x]
"""
        total, parts = instruction_count.counts_of(annotated)
        self.assertEqual((total, parts["linear layer"], parts["update"], parts["rest"]), (1000, 400, 50, 550))


if __name__ == "__main__":
    unittest.main()
