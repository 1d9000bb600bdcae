#!/usr/bin/env python3
"""Measures the step's parts and the all-reduce, predicts larger runs, simulates some: writes scaling.json.

    tests/scaling/study.py --build build/release --data output/mnist.h5 [--steps 100]

report.py makes the table and the plot of it. It takes about a minute.
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import model
import simulate

HERE = Path(__file__).resolve().parent
BATCH = 100  # images a rank: weak scaling
GLOBAL_BATCH = 4096  # images of all ranks: strong scaling
RANKS = [1 << k for k in range(13)]
# (alpha in seconds, beta in seconds a byte), round figures of the order that vendors publish. InfiniBand: nodes of 8 GPUs on NVLink
# (5 us for a message between kernels, 400 GB/s), 2 us and 50 GB/s (NDR, 400 Gbit/s) between them. Ethernet: one rank
# a node, 30 us through TCP and 1.25 GB/s (10 Gbit/s).
NETWORKS = {
    "infiniband": {"node": 8, "inside": (5e-6, 1 / 400e9), "between": (2e-6, 1 / 50e9)},
    "ethernet": {"node": 1, "inside": (0.0, 0.0), "between": (30e-6, 1 / 1.25e9)},
}
# An estimate, not a measurement. 8.2 million products an image (tests/benchmark), float32 at 40 % of the 67 TFLOP/s
# that NVIDIA states for an H100, and 20 kernels of at least 3 us each.
GPU_SECONDS_PER_IMAGE = 2 * 8.2e6 / (0.4 * 67e12)
GPU_SECONDS_PER_STEP = 20 * 3e-6
# Open MPI's numbers of its all-reduce algorithms.
OPEN_MPI = {"recursive_doubling": 3, "ring": 4}


def measure(options, ranks, algorithm=None):
    environment = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1"}
    if os.getuid() == 0:
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if algorithm:
        environment.update(OMPI_MCA_coll_tuned_use_dynamic_rules="1")
        environment.update(OMPI_MCA_coll_tuned_allreduce_algorithm=str(OPEN_MPI[algorithm]))
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
    command = [*launcher, str(options.build / "convnet_scaling"),
               "--data", str(options.data), "--steps", str(options.steps)]
    print(f"measuring {ranks} ranks, {algorithm or 'default'}", file=sys.stderr, flush=True)
    result = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(result.stdout.splitlines()[-1])


def fits(options):
    """Alpha and beta of this machine's shared memory, by number of ranks and algorithm, and the worst relative error."""
    found = []
    for ranks in (2, 4):
        for algorithm in OPEN_MPI:
            times = measure(options, ranks, algorithm)["all_reduce"]
            alpha, beta = model.fit(algorithm, ranks, times)
            errors = [abs(model.all_reduce(algorithm, ranks, n, alpha, beta) / t - 1) for n, t in times]
            found.append({"ranks": ranks, "algorithm": algorithm, "alpha_us": 1e6 * alpha,
                          "gigabytes_per_s": 1e-9 / beta if beta else None, "worst_error_percent": 100 * max(errors),
                          "mean_error_percent": 100 * sum(errors) / len(errors), "times": times})
    return found


def predictions(cpu_seconds_per_image, gradient_bytes):
    """Milliseconds of a step and parallel efficiency, for each kind of scaling, step and network."""
    computes = {
        "cpu": lambda images: cpu_seconds_per_image * images,
        "gpu": lambda images: GPU_SECONDS_PER_STEP + GPU_SECONDS_PER_IMAGE * images,
    }
    rows = []
    for device, compute in computes.items():
        for name, network in NETWORKS.items():
            for ranks in RANKS:
                sum_seconds = model.two_level(ranks, gradient_bytes, network)
                weak = compute(BATCH) + sum_seconds
                strong = compute(GLOBAL_BATCH / ranks) + sum_seconds
                rows.append({"device": device, "network": name, "ranks": ranks, "all_reduce_us": 1e6 * sum_seconds,
                             "weak_ms": 1e3 * weak, "weak_efficiency": compute(BATCH) / weak,
                             "strong_ms": 1e3 * strong,
                             "strong_efficiency": compute(GLOBAL_BATCH) / (ranks * strong)})
    return rows


def simulations(gradient_bytes, compute_seconds):
    """Simulated beside predicted steps on one-level clusters with the constants between nodes."""
    rows = []
    microseconds = round(1e6 * compute_seconds)
    for name, network in NETWORKS.items():
        link = network["between"]
        for algorithm in simulate.ALGORITHMS:
            for ranks in (64, 256, 1024):
                if (name, algorithm, ranks) == ("infiniband", "ring", 1024):
                    continue  # 2 million messages, which Ethernet's has too
                print(f"simulating {ranks} ranks, {algorithm}, {name}", file=sys.stderr, flush=True)
                steps = 1 if algorithm == "ring" else 3  # all steps take equally long
                step = simulate.step_seconds(ranks, algorithm, link, gradient_bytes, microseconds, steps)
                simulated = step - 1e-6 * microseconds
                formula = model.all_reduce(algorithm, ranks, gradient_bytes, *link)
                rows.append({"network": name, "algorithm": algorithm, "ranks": ranks, "step_ms": 1e3 * step,
                             "simulated_us": 1e6 * simulated, "formula_us": 1e6 * formula,
                             "deviation_percent": 100 * (formula / simulated - 1)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="folder of convnet_scaling")
    parser.add_argument("--data", type=Path, required=True, help="data file made by `convnet convert`")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    output = HERE / "scaling.json"
    measured = [measure(options, ranks) for ranks in (1, 2, 4)]
    gradient_bytes = measured[0]["gradient_bytes"]
    parts = measured[0]["step"]
    compute = 1e-3 * (parts["step_ms"] - parts["communication_ms"])
    cpu = next(line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
               if line.startswith("model name"))
    report = {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "gradient_bytes": gradient_bytes,
              "measured": measured, "fits": fits(options),
              "predicted": predictions(compute / BATCH, gradient_bytes)}
    report["simulated"] = simulations(gradient_bytes, compute)
    output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
