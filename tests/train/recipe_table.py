#!/usr/bin/env python3
"""Trains each recipe at each number of ranks and with each seed; prints a Markdown table of test accuracies.

    tests/train/recipe_table.py --build build/release --data output/mnist.h5 [--recipes large] [--ranks 1 8]
        [--batch 100] [--epochs 1] [--seeds 0 1 2 3 4] [-- OPTIONS OF convnet train]

One thread a rank, on the CPU. A run takes about 5 seconds an epoch on one core.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

OPEN_MPI = {
    "OMPI_MCA_mpi_yield_when_idle": "1",  # there may be more ranks than cores
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def accuracy(args, recipe, ranks, seed):
    """Percent of the test images read rightly after the last epoch."""
    launcher = ["mpiexec", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
    command = launcher + [f"{args.build}/convnet", "train", "--data", args.data, "--device", "cpu", "--threads", "1"]
    command += ["--recipe", recipe, "--batch", str(args.batch), "--epochs", str(args.epochs), "--seed", str(seed)]
    run = subprocess.run(command + args.options, env=os.environ | OPEN_MPI, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return float(re.findall(r"Test accuracy: ([0-9.]+)", run.stdout)[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--recipes", nargs="+", default=["seed", "onecycle", "large"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--batch", type=int, default=100, help="images a rank and step")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("options", nargs="*", help="options of convnet train, behind --")
    args = parser.parse_args()
    print("| recipe | ranks x batch | epochs | seeds | mean, % | least | greatest |\n" + "| --- " * 7 + "|")
    for recipe in args.recipes:
        for ranks in args.ranks:
            found = [accuracy(args, recipe, ranks, seed) for seed in args.seeds]
            seeds = f"{args.seeds[0]}-{args.seeds[-1]}"
            print(f"| `{recipe}` | {ranks} x {args.batch} | {args.epochs} | {seeds} | {statistics.mean(found):.2f} "
                  f"| {min(found):.2f} | {max(found):.2f} |", flush=True)


if __name__ == "__main__":
    main()
