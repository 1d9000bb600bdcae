"""Weak and strong scaling to 4,096 ranks: a step's compute, measured or estimated, and its all-reduce by model.py."""
import sys
from functools import partial
from pathlib import Path

import model

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmark"))
import roofline  # noqa: E402

BATCH = 100  # images a rank: weak scaling
GLOBAL_BATCH = 4096  # images of all ranks: strong scaling
RANKS = [1 << k for k in range(13)]
# (alpha in seconds, beta in seconds a byte), round figures of the order that vendors publish. InfiniBand: nodes of 8
# GPUs on NVLink (5 us for a message between kernels, 400 GB/s), 2 us and 50 GB/s (NDR, 400 Gbit/s) between them.
# Ethernet: one rank a node, 30 us through TCP and 1.25 GB/s (10 Gbit/s).
NETWORKS = {
    "InfiniBand": {"node": 8, "inside": (5e-6, 1 / 400e9), "between": (2e-6, 1 / 50e9)},
    "Ethernet": {"node": 1, "inside": (30e-6, 1 / 1.25e9), "between": (30e-6, 1 / 1.25e9)},
}


def cpu_seconds(step, images):
    """Of a step as measured on one rank, without its communication, which is one of BATCH images."""
    return 1e-3 * (step["step_ms"] - step["communication_ms"]) / BATCH * images


def gpu_seconds(images):
    """Of a step in float32, launched as one graph: an estimate."""
    return 1e-6 * roofline.sums(list(roofline.kernels(images, "fp32")))[1]


def scale(compute, sum_seconds, ranks):
    """Seconds and parallel efficiency, (weak, strong), of a step that computes compute(images) seconds."""
    weak, strong = compute(BATCH) + sum_seconds, compute(GLOBAL_BATCH // ranks) + sum_seconds
    return (weak, compute(BATCH) / weak), (strong, compute(GLOBAL_BATCH) / (ranks * strong))


def computes(step):
    """By device: seconds of a step's compute as a function of a rank's images."""
    return {"CPU": partial(cpu_seconds, step), "GPU": gpu_seconds}


def predictions(step, gradient_bytes):
    """Rows of (device, network, ranks, seconds of the all-reduce, *scale)."""
    for device, compute in computes(step).items():
        for name, network in NETWORKS.items():
            for ranks in RANKS:
                sum_seconds = model.two_level(ranks, gradient_bytes, network)
                yield device, name, ranks, sum_seconds, *scale(compute, sum_seconds, ranks)
