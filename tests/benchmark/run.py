#!/usr/bin/env python3
"""Measures convnet's training step, and PyTorch's beside it where a Python with torch is at hand. Prints one JSON.

    tests/benchmark/run.py [--python PATH] [--rounds 3] [--output FILE]
    tests/benchmark/run.py --record                  # writes speed.json and README.md's tables

A case is RANKSxTHREADS[:BATCH[:avx2]]: threads and batch (100) a rank, on the processor's best instruction set or on
AVX2. Ours and PyTorch's settings take turns in every round, so that a slow moment of the machine meets both; each
figure is the median over the rounds. Cases of batch 100 meet all settings of PyTorch, the others the two that were the
fastest of these on as many ranks and threads. Progress goes to stderr.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import table
from programs import HERE, ROOT, add_options, data_file, environment

CASES = "1x1,1x2,2x1,1x1:32,1x1:512,1x1:1000,1x1:100:avx2"
SETTINGS = {
    "nchw": [],
    "channels_last": ["--layout", "channels_last"],
    "nchw, compiled": ["--compile"],
    "channels_last, compiled": ["--layout", "channels_last", "--compile"],
    table.TUTORIAL: ["--loader", "torchvision"],
}


class Case(NamedTuple):
    ranks: int
    threads: int
    batch: int = 100
    isa: str = "native"

    @staticmethod
    def parse(text):
        processes, *more = text.split(":")
        return Case(*map(int, processes.split("x")), *map(int, more[:1]), *more[1:])

    @property
    def meets_all(self):
        return self.batch == 100 and self.isa == "native"

    def flags(self, options):
        """As many images in every case; at least two steps a group."""
        steps = max(20, options.steps * 100 // self.batch)
        return ["--threads", self.threads, "--batch", self.batch, "--steps", steps]


def log(text):
    print(text, file=sys.stderr, flush=True)


def output_of(command, **variables):
    """What a program prints; None, with its last words on stderr, if it fails."""
    command = list(map(str, command))
    result = subprocess.run(command, env=environment(**variables), capture_output=True, text=True)
    if result.returncode == 0:
        return result.stdout
    log(f"failed: {' '.join(command)}: {(result.stderr.splitlines() or ['no message'])[-1]}")
    return None


def json_of(output):
    return json.loads(output.splitlines()[-1]) if output else None


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


def our_command(options, case):
    launcher = [] if case.ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", case.ranks]
    program = [options.build / "convnet_benchmark", "--data", options.data, "--isa", case.isa]
    return [*launcher, *program, *case.flags(options)]


def measure_ours(options, case):
    return json_of(output_of(our_command(options, case)))


def measure_peer(options, python, case, setting):
    flags = ["--world", case.ranks, *case.flags(options), *SETTINGS[setting]]
    limits = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"} if case.isa == "avx2" else {}
    return json_of(output_of([python, HERE / "pytorch_peer.py", ROOT / "data", *flags], **limits))


def second_convolution_ms(options, case):
    """The median milliseconds of each pass of the second convolution, as oneDNN tells them."""
    output = output_of([*our_command(options, case), "--only-steps"], ONEDNN_VERBOSE="1") or ""
    passes = re.findall(r"exec,cpu,convolution,[^,]*,(\w+),[^\n]*?ic16oc32[^\n,]*,([\d.]+)", output)
    kinds = sorted({kind for kind, _ in passes})
    return {kind: statistics.median(float(ms) for name, ms in passes if name == kind) for kind in kinds}


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


def measure_case(options, python, case, settings):
    """Our figures and each setting's, which take turns."""
    ours, peers = [], {setting: [] for setting in settings if python}
    for _ in range(options.rounds):
        ours.append(measure_ours(options, case))
        for setting, reports in peers.items():
            reports.append(measure_peer(options, python, case, setting))
    measured = {
        **case._asdict(),
        "convnet": medians(ours),
        "pytorch": {setting: medians(reports) for setting, reports in peers.items()},
    }
    if case.meets_all:
        measured["second_convolution_ms"] = second_convolution_ms(options, case)
    return measured


def two_fastest(measured, case):
    """PyTorch's two fastest settings on as many ranks and threads, its data in memory; all if none was measured."""
    for other in measured:
        if (other["ranks"], other["threads"]) == (case.ranks, case.threads):
            rates = {name: report["images_per_s"] for name, report in other["pytorch"].items() if report}
            return sorted(rates, key=rates.get, reverse=True)[:2]
    return list(SETTINGS)


def measure_cases(options, python):
    measured = []
    for case in sorted(options.cases, key=lambda case: not case.meets_all):
        log(f"{case}, {options.rounds} rounds")
        settings = list(SETTINGS) if case.meets_all else two_fastest(measured, case)
        measured.append(measure_case(options, python, case, settings))
    return measured


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--python", help="a Python with torch")
    parser.add_argument("--cases", default=CASES, help=f"what to measure ({CASES})")
    parser.add_argument("--steps", type=int, default=200, help="steps of 100 images; in larger batches fewer (200)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="write the JSON here too")
    parser.add_argument("--record", action="store_true", help="write the JSON to speed.json, its tables to README.md")
    options = parser.parse_args()
    options.cases = [Case.parse(case) for case in options.cases.split(",")]
    return options


def main():
    options = parse_options()
    python = python_with_torch(options.python)
    with data_file(options) as options.data:
        result = {
            "machine": machine(),
            "rounds": options.rounds,
            "start_up": start_up(options),
            "cases": measure_cases(options, python),
        }
    text = json.dumps(result, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")
    if options.record:
        table.SPEED.write_text(text + "\n")
        table.write_readme(result)


if __name__ == "__main__":
    main()
