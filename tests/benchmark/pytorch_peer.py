#!/usr/bin/env python3
"""Times the same training in PyTorch on the CPU and prints one line of JSON: what convnet is measured against.

The network, the optimiser and the batches are those of the tutorial that convnet translates. With --loader memory
the images lie in memory as float tensors and a batch is a slice of them, the fastest there is without a loader;
with --loader torchvision they come as in the tutorial, from a DataLoader over torchvision's MNIST. More than one
process is DistributedDataParallel over gloo. Rank 0 reports the median of 10 groups of steps after 20 steps.
"""
import argparse
import gzip
import json
import os
import statistics
import time
from pathlib import Path

import numpy
import torch
from torch import nn

GROUPS = 10
WARM_UP_STEPS = 20


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = self.block(1, 16)
        self.layer2 = self.block(16, 32)
        self.fc = nn.Linear(7 * 7 * 32, 10)

    @staticmethod
    def block(channels_in, channels_out):
        return nn.Sequential(
            nn.Conv2d(channels_in, channels_out, kernel_size=5, stride=1, padding=2),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2),
        )

    def forward(self, x):
        x = self.layer2(self.layer1(x))
        return self.fc(x.reshape(x.size(0), -1))


def read_idx(path):
    """An IDX file of bytes, compressed by gzip, as a uint8 tensor."""
    with gzip.open(path, "rb") as file:
        content = file.read()
    dimensions = content[3]
    shape = numpy.frombuffer(content, ">i4", dimensions, offset=4)
    return torch.tensor(numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * dimensions).reshape(shape))


def read_training_set(folder):
    images = read_idx(folder / "train-images-idx3-ubyte.gz")
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz")
    return images, labels.long()


def memory_batches(options, rank):
    images, labels = read_training_set(options.data)
    images = images.float().div(255).unsqueeze(1)[rank :: options.world]
    labels = labels[rank :: options.world]
    if options.layout == "channels_last":
        images = images.contiguous(memory_format=torch.channels_last)
    while True:
        for first in range(0, len(images) - options.batch + 1, options.batch):
            yield images[first : first + options.batch], labels[first : first + options.batch]


def torchvision_batches(options, rank):
    from torchvision import datasets, transforms

    class Mnist(datasets.MNIST):
        """torchvision's data set over the files of the data folder."""

        def __init__(self):
            self.transform, self.target_transform = transforms.ToTensor(), None
            self.data, self.targets = read_training_set(options.data)

    data = Mnist()
    sampler = torch.utils.data.DistributedSampler(data, options.world, rank)
    while True:
        yield from torch.utils.data.DataLoader(data, options.batch, sampler=sampler, drop_last=True)


def make_step(options, rank):
    torch.manual_seed(0)
    model = ConvNet()
    if options.layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    if options.world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    if options.compile:
        model = torch.compile(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    make_batches = torchvision_batches if options.loader == "torchvision" else memory_batches
    batches = make_batches(options, rank)

    def step():
        images, labels = next(batches)
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def run(rank, options):
    torch.set_num_threads(options.threads)
    if options.world > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=options.world)
    step = make_step(options, rank)
    for _ in range(WARM_UP_STEPS):
        step()
    steps = max(1, options.steps // GROUPS)
    groups = []
    for _ in range(GROUPS):
        start = time.perf_counter()
        for _ in range(steps):
            step()
        groups.append(1e3 * (time.perf_counter() - start) / steps)
    if rank == 0:
        median = statistics.median(groups)
        report = {
            "version": str(torch.__version__),
            "ranks": options.world,
            "threads": options.threads,
            "batch": options.batch,
            "layout": options.layout,
            "compiled": options.compile,
            "loader": options.loader,
            "ms_per_step": median,
            "ms_per_step_min": min(groups),
            "images_per_s": 1e3 * options.batch * options.world / median,
        }
        print(json.dumps(report), flush=True)
    if options.world > 1:
        torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the IDX files")
    parser.add_argument("--world", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=1, help="threads a process")
    parser.add_argument("--batch", type=int, default=100, help="images a process and step")
    parser.add_argument("--steps", type=int, default=200, help="steps to time, in 10 groups")
    parser.add_argument("--layout", choices=["nchw", "channels_last"], default="nchw")
    parser.add_argument("--loader", choices=["memory", "torchvision"], default="memory")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    options = parser.parse_args()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29561")
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    if options.world == 1:
        run(0, options)
    else:
        torch.multiprocessing.spawn(run, (options,), nprocs=options.world)


if __name__ == "__main__":
    main()
