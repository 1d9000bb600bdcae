#!/usr/bin/env python3
"""Makes of scaling.json the plot scaling.svg and the tables in the README, between their marks.

    report.py            # writes both
    report.py --check    # exit code 1 unless both are these very ones
"""
import argparse
import json
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path

import model
import plot
import predict

HERE = Path(__file__).resolve().parent
STUDY, SVG, README = HERE / "scaling.json", HERE / "scaling.svg", HERE.parent.parent / "README.md"
SHOWN_RANKS = (64, 1024, 4096)


def table(titles, rows):
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def title(algorithm):
    return algorithm.replace("_", " ").replace("rabenseifner", "Rabenseifner")


def cost(seconds, efficiency):
    return f"{1e3 * seconds:.2f} ({100 * efficiency:.3g} %)"


def measured_row(run):
    parts = ("compute_ms", "communication_ms", "data_ms", "rest_ms", "step_ms")
    return [run["ranks"], *(f"{ms:.2f}" for ms in (*(run["step"][part] for part in parts), max(run["steps_ms"])))]


def measured_table(study):
    return table(["ranks", "compute", "communication", "data", "rest", "step, ms", "slowest run's step"],
                 [measured_row(run) for run in study["measured"]])


def fit_row(ranks, algorithm, times):
    alpha, beta = link = model.fit(algorithm, ranks, times)
    errors = [100 * abs(model.all_reduce(algorithm, ranks, n, link) / seconds - 1) for n, seconds in times]
    return [ranks, title(algorithm), f"{1e6 * alpha:.1f}", f"{1e-9 / beta:.1f}",
            f"{sum(errors) / len(errors):.0f} ({max(errors):.0f}) %"]


def fit_table(study):
    return table(["ranks", "all-reduce", "alpha, µs", "1/beta, GB/s", "mean (worst) error of the fit"],
                 [fit_row(**case) for case in study["all_reduces"]])


def predicted_table(study):
    rows = predict.predictions(study["measured"][0]["step"], study["gradient_bytes"])
    return table(["step", "network", "ranks", "all-reduce, µs", "weak: ms (efficiency)", "strong: ms (efficiency)"],
                 [[device, network, f"{ranks:,}", f"{1e6 * seconds:.0f}", cost(*weak), cost(*strong)]
                  for device, network, ranks, seconds, weak, strong in rows if ranks in SHOWN_RANKS])


def simulated_table(study):
    rows = defaultdict(dict)
    for run in study["simulated"]:
        network = predict.NETWORKS[run["network"]]
        formula = model.two_level(run["ranks"], run["bytes"], network, partial(model.all_reduce, run["algorithm"]))
        cell = f"{1e6 * run['seconds']:,.1f} ({100 * (formula / run['seconds'] - 1):+.2f} %)"
        rows[run["network"], title(run["algorithm"]), run["kind"]][run["ranks"]] = cell
    ranks = sorted(next(iter(rows.values())))
    return table(["network", "all-reduce", "kind", *(f"{p:,} ranks, µs (formula)" for p in ranks)],
                 [[*key, *(cells[p] for p in ranks)] for key, cells in rows.items()])


def fastest_simulated(study):
    """Seconds by (network, ranks), of the fastest algorithm, which is what the model takes."""
    seconds = defaultdict(lambda: float("inf"))
    for run in study["simulated"]:
        if run["kind"] == "as modelled":
            case = run["network"], run["ranks"]
            seconds[case] = min(seconds[case], run["seconds"])
    return seconds


def svg(study):
    lines, circles = ([defaultdict(list), defaultdict(list)] for _ in range(2))  # weak and strong
    step = study["measured"][0]["step"]
    for device, network, ranks, _, *scaled in predict.predictions(step, study["gradient_bytes"]):
        for panel, (_, efficiency) in zip(lines, scaled):
            panel[device, network].append((ranks, efficiency))
    for (network, ranks), seconds in fastest_simulated(study).items():
        for device, compute in predict.computes(step).items():
            for panel, (_, efficiency) in zip(circles, predict.scale(compute, seconds, ranks)):
                panel[device, network].append((ranks, efficiency))
    return plot.plot([("Weak: 100 images a rank", lines[0], circles[0]),
                      ("Strong: 4,096 images in all", lines[1], circles[1])])


def with_tables(text, study):
    """The README's text with this study's tables between their marks."""
    for name, make in (("measured", measured_table), ("fits", fit_table), ("modelled", predicted_table),
                       ("simulated", simulated_table)):
        begin, end = f"<!-- scaling: {name} -->\n", "<!-- end -->"
        head, tail = text.split(begin)
        text = head + begin + make(study) + end + tail.split(end, 1)[1]
    return text


def write_all(study):
    SVG.write_text(svg(study), encoding="utf-8")
    README.write_text(with_tables(README.read_text(encoding="utf-8"), study), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    study = json.loads(STUDY.read_text())
    if not options.check:
        write_all(study)
        return 0
    readme = README.read_text(encoding="utf-8")
    if SVG.read_text(encoding="utf-8") == svg(study) and with_tables(readme, study) == readme:
        return 0
    print("report.py: README.md or scaling.svg has not what scaling.json says: run report.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
