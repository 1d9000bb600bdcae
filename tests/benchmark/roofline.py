#!/usr/bin/env python3
"""What a training step costs an H200 at least, kernel by kernel, as the CUDA back end queues them.

    roofline.py            # the table, as README.md has it
    roofline.py --check    # exit code 1 unless README.md has this very table
    roofline.py --microseconds BATCH PRECISION    # the sum alone

The network is the tutorial's, for 1 x 28 x 28 images and 10 classes; kernels fused, SGD. A kernel takes the time
in which its bytes go through the memory or its operations through the arithmetic units, whichever is longer, and
never less than a node of a graph takes to start. Each kernel reads and writes the whole of its operands once; what
the 50 MB cache keeps between kernels is not taken off. No figure here is measured.
"""
import argparse
import pathlib
import sys

BANDWIDTH = 4.8e12  # bytes a second, HBM3e
PEAK = {"fp32": 67e12, "tf32": 494e12, "bf16": 989e12}  # operations a second; dense tensor cores but for fp32
NODE = 1.0  # microseconds from one node of a graph to the next
LAUNCH = 2.5  # microseconds from one launch on a stream to the next
BATCHES = (100, 1000)
PRECISIONS = ("fp32", "tf32")
CHANNELS, SIZE, KERNEL, CLASSES = (1, 16, 32), (28, 14, 7), 5, 10
BEGIN, END = "<!-- roofline.py -->", "<!-- end of roofline.py -->"


def kernels(batch, precision):
    """(name, bytes, operations, peak) of each kernel of a step, in order."""
    act = 2 if precision == "bf16" else 4  # bytes of an activation
    product, vector = PEAK[precision], PEAK["fp32"]
    inputs = CHANNELS[2] * SIZE[2] ** 2
    weights = [CHANNELS[i + 1] * CHANNELS[i] * KERNEL**2 for i in range(2)]
    parameters = sum(weights) + 3 * sum(CHANNELS[1:]) + (inputs + 1) * CLASSES
    pixels = [batch * CHANNELS[i] * SIZE[i] ** 2 for i in range(2)]  # what a block takes in
    convolved = [batch * CHANNELS[i + 1] * SIZE[i] ** 2 for i in range(2)]
    pooled = [count // 4 for count in convolved]
    products = [2 * convolved[i] * CHANNELS[i] * KERNEL**2 for i in range(2)]
    logits = batch * CLASSES
    linear = 2 * logits * inputs
    parts = [16 * CHANNELS[i + 1] * min(64, (batch + 7) // 8) for i in range(2)]  # partial sums, two doubles each
    casts = precision == "bf16"

    yield "gather", pixels[0] * (1 + act) + 8 * batch, pixels[0], vector
    if casts:
        yield "convert weights", parameters * 6, 0, vector
    for i in range(2):
        name = f"block {i + 1}: "
        yield name + "convolution", (pixels[i] + weights[i] + convolved[i]) * act, products[i], product
        yield name + "channel_sums", convolved[i] * act + parts[i], 3 * convolved[i], vector
        yield name + "set_statistics", parts[i], parts[i] // 8, vector
        yield name + "normalise_relu_pool", (convolved[i] + pooled[i]) * act + pooled[i], 3 * convolved[i], vector
    yield "fill_rows", 4 * logits, 0, vector
    yield "linear", pooled[1] * act + inputs * CLASSES * act + 8 * logits, linear, product
    yield "softmax_cross_entropy", logits * (4 + act), 10 * logits, vector
    yield "sum_columns", logits * act, logits, vector
    yield "linear: weights' gradient", (pooled[1] + logits) * act + 4 * inputs * CLASSES, linear, product
    yield "linear: input's gradient", (pooled[1] + logits + inputs * CLASSES) * act, linear, product
    for i in (1, 0):
        name = f"block {i + 1}: "
        # Of x only the winners of the pooling are read, but they lie in nearly every sector.
        yield name + "gradient_sums", (convolved[i] + pooled[i]) * act + pooled[i] + parts[i], 3 * pooled[i], vector
        yield name + "set_norm_gradients", parts[i], parts[i] // 8, vector
        yield name + "set_input_terms", parts[i], parts[i] // 8, vector
        yield (name + "replace_by_gradient", (2 * convolved[i] + pooled[i]) * act + pooled[i], 4 * convolved[i], vector)
        yield (name + "weights' gradient", (pixels[i] + convolved[i] + weights[i]) * act, products[i], product)
        if casts:
            yield name + "convert gradient", weights[i] * 6, 0, vector
        if i > 0:
            yield name + "input's gradient", (pixels[i] + convolved[i] + weights[i]) * act, products[i], product
    yield "check_finite", 4 * parameters, parameters, vector
    yield "sgd", 12 * parameters, 4 * parameters, vector


def microseconds(kernel):
    _, size, operations, peak = kernel
    return 1e6 * max(size / BANDWIDTH, operations / peak)


def sums(step):
    """Microseconds at the roofs, as a graph, and one by one on a stream."""
    times = [microseconds(kernel) for kernel in step]
    return sum(times), sum(max(t, NODE) for t in times), sum(max(t, LAUNCH) for t in times + [0.0])


def bound(kernel):
    _, size, operations, peak = kernel
    if microseconds(kernel) < NODE:
        return "start"
    return "memory" if size / BANDWIDTH > operations / peak else "arithmetic"


def table():
    columns = [(batch, precision) for batch in BATCHES for precision in PRECISIONS]
    steps = {column: list(kernels(*column)) for column in columns}
    heads = "".join(f" µs, {batch}, {precision} | bound by |" for batch, precision in columns)
    lines = [
        f"| kernel | MB, batch {BATCHES[0]} | MFLOP, batch {BATCHES[0]} |" + heads,
        "| --- | ---: | ---: |" + " ---: | --- |" * len(columns),
    ]
    for row in zip(*steps.values()):
        name, size, operations, _ = row[0]
        cells = "".join(f" {microseconds(kernel):.2f} | {bound(kernel)} |" for kernel in row)
        lines.append(f"| {name} | {size / 1e6:.3f} | {operations / 1e6:.2f} |" + cells)
    names = ("**sum at the roofs**", f"**as one graph** (at least {NODE} µs each)",
             f"**one by one** (at least {LAUNCH} µs each)")
    for i, name in enumerate(names):
        first = steps[columns[0]]
        totals = (f" {sum(k[1] for k in first) / 1e6:.3f} | {sum(k[2] for k in first) / 1e6:.2f} |"
                  if i == 0 else "  |  |")
        cells = "".join(f" {sums(steps[column])[i]:.1f} |  |" for column in columns)
        lines.append(f"| {name} |" + totals + cells)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--microseconds", nargs=2, metavar=("BATCH", "PRECISION"))
    options = parser.parse_args()
    if options.microseconds:
        batch, precision = options.microseconds
        print(f"{sums(list(kernels(int(batch), precision)))[0]:.2f}")
        return 0
    if not options.check:
        print(table())
        return 0
    readme = (pathlib.Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    if readme.count(BEGIN) == 1 and readme.split(BEGIN)[1].split(END)[0].strip() == table():
        return 0
    print("roofline.py: README.md has another table: put in what roofline.py prints", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
