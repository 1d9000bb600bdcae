#!/usr/bin/env python3
"""Times the same training in PyTorch on a GPU and prints a line of JSON for each setting: what convnet is measured
against there.

Network, optimiser and batches are those of the tutorial that convnet translates. The training set lies on the device
as bytes; a step gathers its rows and divides by 255 there. Precisions: true float32, float32 through tensor cores, and
bfloat16 autocast; each step run eagerly, compiled, and as one CUDA graph of forward, backward and update. A setting's
time is the median of 5 groups of steps, from one event on the device to another. --seconds bounds it all: settings come
in order of worth, and those for which no time is left are reported as such. --device cpu tries the control flow.
"""
import argparse
import gzip
import json
import os
import statistics
import struct
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

GROUPS = 5
WARM_UP_STEPS = 12
MODES = ("graph", "eager", "compiled", "max-autotune")


def make_network():
    def block(channels_in, channels_out):
        return [
            nn.Conv2d(channels_in, channels_out, kernel_size=5, stride=1, padding=2),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2),
        ]

    return nn.Sequential(*block(1, 16), *block(16, 32), nn.Flatten(), nn.Linear(7 * 7 * 32, 10))


def read_idx(path):
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3]
    shape = struct.unpack_from(f">{dimensions}i", content, 4)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=4 + 4 * dimensions).reshape(shape)


def set_precision(precision):
    tensor_cores = precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = tensor_cores
    torch.backends.cudnn.allow_tf32 = tensor_cores
    torch.backends.cudnn.benchmark = True


class Step:
    """One training step, from row numbers in self.rows to updated weights."""

    def __init__(self, data, batch, precision, layout, compile_mode):
        self.images, self.labels = data
        device = self.images.device
        torch.manual_seed(0)
        self.network = make_network().to(device)
        self.layout = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        self.network = self.network.to(memory_format=self.layout)
        self.optimizer = torch.optim.SGD(self.network.parameters(), 1e-4, fused=device.type == "cuda")
        self.rows = torch.zeros(batch, dtype=torch.int64, device=device)
        self.device_type = device.type
        self.is_bf16 = precision == "bf16"
        self.is_compiled = compile_mode is not None
        self.loss_of = self.forward
        if self.is_compiled:
            torch.compiler.reset()  # after several settings it would compile no more, and run eagerly
            self.loss_of = torch.compile(self.forward, mode=compile_mode)

    def forward(self):
        images = self.images[self.rows].unsqueeze(1).float().div(255).contiguous(memory_format=self.layout)
        # Without the cache, which a captured graph must not use.
        with torch.autocast(self.device_type, torch.bfloat16, enabled=self.is_bf16, cache_enabled=False):
            logits = self.network(images)
        return nn.functional.cross_entropy(logits.float(), self.labels[self.rows])

    def __call__(self):
        if self.is_compiled:
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_of().backward()
        self.optimizer.step()


def captured(step):
    """The step as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    step.optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step.loss_of().backward()
        step.optimizer.step()
    return graph.replay


def milliseconds(work, device):
    """How long work takes on the device."""
    if device.type == "cpu":
        start = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - start)
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    work()
    last.record()
    last.synchronize()
    return first.elapsed_time(last)


def measure(options, data, setting):
    set_precision(setting["precision"])
    compile_modes = {"compiled": "reduce-overhead", "max-autotune": "max-autotune"}
    compile_mode = compile_modes.get(setting["mode"])
    step = Step(data, setting["batch"], setting["precision"], setting["layout"], compile_mode)
    order = torch.randperm(len(data[0]), device=data[0].device)
    run = captured(step) if setting["mode"] == "graph" else step
    batch = setting["batch"]
    batches = len(order) // batch
    done = 0

    def steps(count):
        nonlocal done
        for _ in range(count):
            first = done % batches * batch
            step.rows.copy_(order[first : first + batch])
            run()
            done += 1

    steps(WARM_UP_STEPS)
    groups = [milliseconds(lambda: steps(options.steps), data[0].device) / options.steps for _ in range(GROUPS)]
    return statistics.median(groups), min(groups)


def settings(batches):
    """In order of worth: the fast ones first; what takes long to compile last."""
    for mode in MODES:
        for precision in ("fp32", "tf32", "bf16"):
            for batch in batches:
                for layout in ("nchw", "channels_last") if mode != "max-autotune" else ("nchw",):
                    yield {"mode": mode, "precision": precision, "batch": batch, "layout": layout}


def report(line):
    print(json.dumps(line), flush=True)


def report_best(lines):
    """The fastest setting of each precision and batch."""
    for precision, batch in dict.fromkeys((line["precision"], line["batch"]) for line in lines):
        rivals = [line for line in lines if (line["precision"], line["batch"]) == (precision, batch)]
        report({**min(rivals, key=lambda line: line["ms_per_step"]), "best": True})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the IDX files")
    parser.add_argument("--batches", default="100,1000")
    parser.add_argument("--steps", type=int, default=200, help="in each of 5 groups")
    parser.add_argument("--seconds", type=float, default=100, help="in all")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    start = time.monotonic()
    lines = []

    def stop():  # a compilation that does not end in time
        report({"error": f"stopped after {options.seconds:.0f} s"})
        report_best(lines)
        sys.stdout.flush()
        os._exit(0)

    timer = threading.Timer(options.seconds, stop)
    timer.daemon = True
    timer.start()
    device = torch.device(options.device)
    images = read_idx(options.data / "train-images-idx3-ubyte.gz").to(device)
    labels = read_idx(options.data / "train-labels-idx1-ubyte.gz").long().to(device)
    facts = {"version": torch.__version__, "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu"}
    for setting in settings([int(batch) for batch in options.batches.split(",")]):
        began = time.monotonic()
        try:
            median, least = measure(options, (images, labels), setting)
        except Exception as error:  # a setting that this PyTorch cannot run says so, and the next one comes
            report({**setting, "error": str(error).splitlines()[0][:200] if str(error) else type(error).__name__})
            continue
        rate = 1e3 * setting["batch"] / median
        line = {**facts, **setting, "ms_per_step": round(median, 5), "ms_per_step_min": round(least, 5)}
        line |= {"images_per_s": round(rate, 1), "seconds": round(time.monotonic() - began, 2)}
        lines.append(line)
        report(line)
    timer.cancel()
    report_best(lines)
    report({"seconds": round(time.monotonic() - start, 1)})


if __name__ == "__main__":
    main()
