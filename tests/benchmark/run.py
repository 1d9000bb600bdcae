#!/usr/bin/env python3
"""Measures convnet's training step, and PyTorch's beside it where a Python with torch is at hand. Prints one JSON.

    tests/benchmark/run.py [--python PATH] [--cases 1x1,1x2,2x1] [--rounds 3] [--output FILE]

A case is RANKS x THREADS (a rank). Ours and PyTorch's settings take turns in every round, so that a slow moment of
the machine meets both; each figure is the median over the rounds. PyTorch counts with its fastest setting on as many
cores: any case with the same ranks x threads. Progress goes to stderr.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEERS = {
    "nchw": [],
    "channels_last": ["--layout", "channels_last"],
    "nchw, compiled": ["--compile"],
    "channels_last, compiled": ["--layout", "channels_last", "--compile"],
    "nchw, DataLoader": ["--loader", "torchvision"],
}


def log(text):
    print(text, file=sys.stderr, flush=True)


def environment():
    allow_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **(allow_root if os.getuid() == 0 else {})}


def json_of(command):
    """What a program prints as its last line of JSON; None, with its last words on stderr, if it fails."""
    result = subprocess.run(list(map(str, command)), env=environment(), capture_output=True, text=True)
    if result.returncode == 0:
        return json.loads(result.stdout.splitlines()[-1])
    log(f"failed: {' '.join(map(str, command))}: {(result.stderr.splitlines() or ['no message'])[-1]}")
    return None


def python_with_torch(asked_for):
    """The Python to run the peer with, or None."""
    python = asked_for or shutil.which("python3")
    if python and subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
        return python
    if asked_for:
        sys.exit(f"{asked_for} cannot import torch")
    log("python3 cannot import torch: no PyTorch beside it (--python PATH names another Python)")
    return None


def machine():
    """The processor as the system describes it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}


def measure_ours(options, ranks, threads):
    launcher = [] if ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks]
    flags = ["--data", options.data, "--threads", threads, "--batch", options.batch, "--steps", options.steps]
    return json_of([*launcher, options.build / "convnet_benchmark", *flags])


def measure_peer(options, python, ranks, threads, setting):
    flags = ["--world", ranks, "--threads", threads, "--batch", options.batch, "--steps", options.steps]
    return json_of([python, HERE / "pytorch_peer.py", ROOT / "data", *flags, *PEERS[setting]])


def medians(rounds):
    """One report out of those of all rounds: each number's median, the least of the minima; None if all failed."""
    reports = [report for report in rounds if report]
    if not reports:
        return None
    merged = dict(reports[0])
    for key, value in merged.items():
        if isinstance(value, float):
            pick = min if key.endswith("_min") else statistics.median
            merged[key] = float(f"{pick(report[key] for report in reports):.5g}")
    return merged


def measure_cases(options, python):
    """For each case our figures and each peer setting's."""
    ours = {case: [] for case in options.cases}
    peers = {case: {setting: [] for setting in PEERS if python} for case in options.cases}
    for round_number in range(1, options.rounds + 1):
        for case in options.cases:
            log(f"round {round_number}/{options.rounds}: {case[0]} ranks x {case[1]} threads")
            ours[case].append(measure_ours(options, *case))
            for setting, reports in peers[case].items():
                reports.append(measure_peer(options, python, *case, setting))
    return [
        {
            "cores": case[0] * case[1],
            "convnet": medians(ours[case]),
            "pytorch": {setting: medians(reports) for setting, reports in peers[case].items()},
        }
        for case in options.cases
    ]


def add_ratios(cases):
    """To each case the best PyTorch on as many cores, and how many times as many images a second are ours."""
    for case in cases:
        rivals = [
            (report["images_per_s"], f"{report['ranks']}x{report['threads']} {setting}")
            for other in cases
            if other["cores"] == case["cores"]
            for setting, report in other["pytorch"].items()
            if report
        ]
        if rivals and case["convnet"]:
            images_per_s, case["best_pytorch"] = max(rivals)
            case["times_best_pytorch"] = round(case["convnet"]["images_per_s"] / images_per_s, 3)


def seconds_to_help(convnet):
    def once():
        start = time.perf_counter()
        subprocess.run([convnet, "--help"], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    return [once() for _ in range(10)]


def seconds_to_first_step(convnet, data):
    """From the start of one rank to its first step's line."""

    def once():
        command = [convnet, "train", "--data", data, "--log-every", "1"]
        start = time.perf_counter()
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
            found = next((line for line in process.stdout if "Step [1/" in line), None)
            seconds = time.perf_counter() - start
            process.kill()
        if found is None:
            sys.exit("convnet train printed no first step")
        return seconds

    return [once() for _ in range(5)]


def start_up(options):
    convnet = options.build / "convnet"
    figures = {
        "help_seconds": seconds_to_help(convnet),
        "first_step_seconds": seconds_to_first_step(convnet, options.data),
    }
    return {
        name + kind: round(pick(values), 4)
        for name, values in figures.items()
        for kind, pick in (("", statistics.median), ("_min", min))
    }


def parse_options():
    cores = len(os.sched_getaffinity(0))
    cases = dict.fromkeys([(1, 1), (1, cores), *([(2, cores // 2)] if cores > 1 else [])])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="folder of the programs")
    parser.add_argument("--data", type=Path, help="data file; made of data/ if not given")
    parser.add_argument("--python", help="a Python with torch")
    parser.add_argument("--cases", default=",".join(f"{ranks}x{threads}" for ranks, threads in cases))
    parser.add_argument("--batch", type=int, default=100, help="images a rank and step")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    options.cases = [tuple(map(int, case.split("x"))) for case in options.cases.split(",")]
    return options


def main():
    options = parse_options()
    python = python_with_torch(options.python)
    with tempfile.TemporaryDirectory() as folder:
        if options.data is None:
            options.data = Path(folder) / "mnist.h5"
            subprocess.run(
                [options.build / "convnet", "convert", ROOT / "data", options.data], check=True, stdout=sys.stderr
            )
        result = {"machine": machine(), "start_up": start_up(options), "cases": measure_cases(options, python)}
    add_ratios(result["cases"])
    text = json.dumps(result, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
