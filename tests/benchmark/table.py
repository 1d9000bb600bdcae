#!/usr/bin/env python3
"""Makes README.md's tables of speed.json, which run.py measured: the goals, all cases, and where a step's time goes.

    table.py [FILE]     # prints them
    table.py --write    # puts those of speed.json into README.md, as run.py --record does
    table.py --check    # exit code 1 unless README.md has these very tables
"""
import json
import sys
from typing import NamedTuple

from programs import HERE

SPEED = HERE / "speed.json"
README = HERE / "README.md"
BEGIN, END = "<!-- table.py -->", "<!-- end of table.py -->"
TUTORIAL = "nchw, DataLoader"  # the setting of PyTorch that the tutorial runs
PASS_MFLOP = 2 * 32 * 14 * 14 * 16 * 25 / 1e6  # a pass of the second convolution over an image


def case_of(result, ranks, threads, batch=100, isa="native"):
    """A case that our program could run, or None."""
    wanted = (ranks, threads, batch, isa)
    found = [case for case in result["cases"] if case["convnet"] and key(case) == wanted]
    return found[0] if found else None


def key(case):
    return case["ranks"], case["threads"], case["batch"], case["isa"]


def rivals(result, case, same_ranks):
    """PyTorch's images a second in all settings of as many cores, or of as many ranks: {name: rate}."""
    return {
        f"{other['ranks']} x {other['threads']}, {setting}": report["images_per_s"]
        for other in result["cases"]
        if other["ranks"] * other["threads"] == case["ranks"] * case["threads"] and key(other)[2:] == key(case)[2:]
        if other["ranks"] == case["ranks"] or not same_ranks
        for setting, report in other["pytorch"].items()
        if report
    }


def best(result, case, same_ranks=False):
    """(how many times PyTorch's best images a second are ours, the name of that setting), or None."""
    rates = rivals(result, case, same_ranks)
    if not rates:
        return None
    name = max(rates, key=rates.get)
    return case["convnet"]["images_per_s"] / rates[name], name


def times_best(result, case, same_ranks=False):
    found = case and best(result, case, same_ranks)
    return found[0] if found else None


def times_tutorial(case):
    tutorial = case and case["pytorch"].get(TUTORIAL)
    return case["convnet"]["images_per_s"] / tutorial["images_per_s"] if tutorial else None


def weak_scaling(one, two):
    return two["convnet"]["images_per_s"] / (2 * one["convnet"]["images_per_s"]) if one and two else None


def own_memory(case):
    return case["convnet"]["peak_memory_mb"] - case["convnet"]["data_set_mb"] if case else None


class Goal(NamedTuple):
    text: str
    at_least: bool
    bound: float
    figure: float | None  # None: not measured
    form: str

    def verdict(self):
        if self.figure is None:
            return "not measured"
        reached = self.figure >= self.bound if self.at_least else self.figure <= self.bound
        return "reached" if reached else "missed"


def goals(result):
    one, threads, ranks = (case_of(result, *shape) for shape in ((1, 1), (1, 2), (2, 1)))
    times, share = "{:.2f} x", "{:.0%}"
    return [
        Goal("1 thread, against the best PyTorch on 1 core", True, 2.4, times_best(result, one), times),
        Goal("2 threads, against the best PyTorch on 2 cores", True, 2.8, times_best(result, threads), times),
        Goal("2 ranks, against the best PyTorch DDP of 2 ranks", True, 3.2, times_best(result, ranks, True), times),
        Goal("2 ranks, against the tutorial's script with its DataLoader", True, 4.0, times_tutorial(ranks), times),
        Goal("share of FMA peak, 1 thread", True, 0.75, one and one["convnet"]["share_of_peak"], share),
        Goal("weak scaling, 2 ranks against 1", True, 0.95, weak_scaling(one, ranks), share),
        Goal("start to first step", False, 0.3, result["start_up"]["first_step_seconds"], "{:.2f} s"),
        Goal("peak memory of a rank, less the data set", False, 120, own_memory(ranks), "{:.0f} MB"),
    ]


def goal_table(result):
    lines = ["| goal, batch 100 | bound | measured | |", "| --- | --- | --- | --- |"]
    for goal in goals(result):
        bound = ("at least " if goal.at_least else "at most ") + goal.form.format(goal.bound)
        measured = "" if goal.figure is None else goal.form.format(goal.figure)
        lines.append(f"| {goal.text} | {bound} | {measured} | {goal.verdict()} |")
    return lines


def case_row(result, case):
    ours = case["convnet"]
    found = best(result, case)
    rate = rivals(result, case, False)[found[1]] if found else None
    peer = f"{rate:,.0f} ({found[1]}) | {found[0]:.2f}" if found else "|"
    return (
        f"| {ours['ranks']} x {ours['threads']} | {ours['batch']} | {ours['instruction_set']} "
        f"| {ours['ms_per_step']:.2f} | {ours['share_of_peak']:.0%} | {ours['peak_memory_mb']:.0f} "
        f"| {ours['images_per_s']:,.0f} | {peer} |"
    )


def case_table(result):
    head = [
        "| ranks x threads | batch | instructions | ms a step | of FMA peak | peak memory, MB | images/s "
        "| best PyTorch, images/s | ratio |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | --- | ---: |",
    ]
    return head + [case_row(result, case) for case in result["cases"] if case["convnet"]]


def part_rows(case):
    """(part, ms, note) of a step; the second convolution's passes are oneDNN's own medians."""
    ours, passes = case["convnet"], case.get("second_convolution_ms", {})
    peak = ours["peak_gflops"] / ours["ranks"]
    names = {
        "forward_training": "second convolution: output",
        "backward_weights": "second convolution: weights' gradient",
        "backward_data": "second convolution: input's gradient",
    }
    for kind, name in names.items():
        if kind in passes:
            yield name, passes[kind], f" ({ours['batch'] * PASS_MFLOP / passes[kind] / peak:.0%} of peak)"
    yield "the rest of forward and backward", ours["forward_backward_ms"] - sum(passes.values()), ""
    yield "all-reduce, with the wait; gradient checked", ours["exchange_ms"], ""
    yield "update", ours["update_ms"], ""


def part_table(result):
    cases = [case for case in result["cases"] if case["convnet"] and "second_convolution_ms" in case]
    columns = [{name: f"{ms:.2f}{note}" for name, ms, note in part_rows(case)} for case in cases]
    heads = "".join(f" {case['ranks']} x {case['threads']}, ms |" for case in cases)
    lines = [f"| part of a step |{heads}", "| --- |" + " ---: |" * len(cases)]
    for name in dict.fromkeys(name for column in columns for name in column):
        lines.append(f"| {name} |" + "".join(f" {column.get(name, '')} |" for column in columns))
    return lines


def conditions(result):
    ours = next((case["convnet"] for case in result["cases"] if case["convnet"]), {})
    versions = {report["version"] for case in result["cases"] for report in case["pytorch"].values() if report}
    beside = f", beside PyTorch {', '.join(sorted(versions))}" if versions else ""
    made_of = f"{ours.get('build')}; {ours.get('libraries')}"
    return f"{result['machine']['cpu']}, {result['machine']['cores']} cores; {made_of}{beside}."


def tables(result):
    parts = (goal_table, case_table, part_table)
    return "\n\n".join([conditions(result), *("\n".join(part(result)) for part in parts)])


def write_readme(result):
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    README.write_text(f"{before}{BEGIN}\n{tables(result)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main():
    flag = sys.argv[1] if len(sys.argv) > 1 else ""
    path = SPEED if flag.startswith("--") or not flag else flag
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    if flag == "--write":
        write_readme(result)
    elif flag == "--check":
        text = README.read_text(encoding="utf-8")
        if text.count(BEGIN) != 1 or text.split(BEGIN)[1].split(END)[0].strip() != tables(result):
            sys.exit("table.py: README.md has other tables: table.py --write")
    else:
        print(tables(result))


if __name__ == "__main__":
    main()
