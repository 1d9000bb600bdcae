#!/usr/bin/env python3
"""Measures the step's parts and the all-reduce, simulates larger runs, and writes scaling.json; then report.py's work.

    tests/scaling/study.py --build build/release --data output/mnist.h5 [--steps 100] [--rounds 5]

It takes about two minutes, of which the first measures: nothing else should be busy on the machine.
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import predict
import report
import simulate

# Open MPI's numbers of its all-reduce algorithms.
OPEN_MPI = {"recursive_doubling": 3, "ring": 4}
SIMULATED_RANKS = (64, 256, 1024)


def measure(options, ranks, steps, algorithm=None):
    environment = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1"}
    if os.getuid() == 0:
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if algorithm:
        environment.update(OMPI_MCA_coll_tuned_use_dynamic_rules="1")
        environment.update(OMPI_MCA_coll_tuned_allreduce_algorithm=str(OPEN_MPI[algorithm]))
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks]
    command = [*launcher, options.build / "convnet_scaling", "--data", options.data, "--steps", steps]
    print(f"measuring {ranks} ranks, {algorithm or 'default'}", file=sys.stderr, flush=True)
    result = subprocess.run(list(map(str, command)), env=environment, check=True, capture_output=True, text=True)
    return json.loads(result.stdout.splitlines()[-1])


def measured_steps(options):
    """Of each number of ranks the fastest round, with the steps of all: other work only adds to them."""
    rounds = [[measure(options, ranks, options.steps) for ranks in (1, 2, 4)] for _ in range(options.rounds)]
    for runs in zip(*rounds):
        runs = sorted(runs, key=lambda run: run["step"]["step_ms"])
        yield {"ranks": runs[0]["ranks"], "gradient_bytes": runs[0]["gradient_bytes"],
               "step": runs[0]["step"], "steps_ms": [run["step"]["step_ms"] for run in runs]}


def measured_all_reduces(options):
    """[bytes, seconds] by number of ranks and algorithm: each the least of the rounds."""
    cases = [(ranks, algorithm) for ranks in (2, 4) for algorithm in OPEN_MPI]
    rounds = [[measure(options, ranks, 1, algorithm)["all_reduce"] for ranks, algorithm in cases]
              for _ in range(options.rounds)]
    for (ranks, algorithm), runs in zip(cases, zip(*rounds)):
        times = [[same[0][0], min(seconds for _, seconds in same)] for same in zip(*runs)]
        yield {"ranks": ranks, "algorithm": algorithm, "times": times}


def simulated_all_reduces(gradient_bytes, compute_seconds):
    """Seconds of the all-reduce in simulated steps. `kind`: as the model assumes it; the ring with a message that
    falls into equal parts; and with SMPI's own corrections by message size."""
    cases = [(network, algorithm, "as modelled") for network in predict.NETWORKS for algorithm in simulate.ALGORITHMS]
    cases += [(network, "ring", "equal parts") for network in predict.NETWORKS]
    cases += [("Ethernet", algorithm, "corrected") for algorithm in ("recursive_doubling", "rabenseifner")]
    microseconds = round(1e6 * compute_seconds)
    for network, algorithm, kind in cases:
        for ranks in SIMULATED_RANKS:
            print(f"simulating {ranks} ranks, {network}, {algorithm}, {kind}", file=sys.stderr, flush=True)
            size = gradient_bytes - gradient_bytes % (4 * ranks) if kind == "equal parts" else gradient_bytes
            corrections = {} if kind == "corrected" else simulate.CONSTANTS_ALONE
            step = simulate.step_seconds(ranks, algorithm, predict.NETWORKS[network], size, microseconds, corrections)
            yield {"network": network, "algorithm": algorithm, "kind": kind, "ranks": ranks, "bytes": size,
                   "step_seconds": step, "seconds": step - 1e-6 * microseconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="folder of convnet_scaling")
    parser.add_argument("--data", type=Path, required=True, help="data file made by `convnet convert`")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    cpu = next(line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
               if line.startswith("model name"))
    measured = list(measured_steps(options))
    all_reduces = list(measured_all_reduces(options))
    gradient_bytes = measured[0]["gradient_bytes"]
    compute = predict.cpu_seconds(measured[0]["step"], predict.BATCH)
    study = {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "gradient_bytes": gradient_bytes,
             "measured": measured, "all_reduces": all_reduces,
             "simulated": list(simulated_all_reduces(gradient_bytes, compute))}
    report.STUDY.write_text(json.dumps(study, indent=1) + "\n")
    report.write_all(study)


if __name__ == "__main__":
    main()
