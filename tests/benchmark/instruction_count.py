#!/usr/bin/env python3
"""Counts the instructions of one training step, and fails if they, or a part's, are more than on record.

    tests/benchmark/instruction_count.py             # counts, part by part, beside the record
    tests/benchmark/instruction_count.py --renew     # makes the count the record

valgrind's callgrind counts on a processor of its own, whose newest instruction set is AVX2: the count does not depend
on the machine, its speed or its load. It does on the compiler, its flags, oneDNN and Highway: a record is one for these
conditions, and where there is none for those at hand, the exit code is 77 (skipped). So it is without valgrind or AVX2.
Callgrind writes down its counts whenever a step begins; of three steps the second is counted, so that the start and
what a first step sets up stay out.
"""
import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from programs import HERE, add_options, data_file, environment

RECORD = HERE / "instruction_count.json"
BATCH = 10
LIMIT = 0.03  # a step, and each part of it, may have as much more than the record; two counts differ by 0.01 % at most
SMALL = 0.002  # of a step: a part that grows by less is let be
SKIPPED = 77
STEP_BEGINS = "*::CpuReplica::forward_backward(*, float)"
PARTS = {  # functions that do not call each other
    "gather": ["gather_images", "gather_labels"],
    "first convolution": [f"FirstConvolution::{name}" for name in ("set_weights", "forward", "backward", "add_up")],
    "second convolution: output": ["Convolution::forward"],
    "second convolution: weights' gradient": ["Convolution::backward_weights"],
    "second convolution: input's gradient": ["Convolution::backward_data"],
    "batch norm, ReLU, pooling": [
        f"NormReluPool::{name}"
        for name in ("sum_image", "take_batch_statistics", "forward_image")
        + ("sum_image_gradient", "take_gradient_sums", "backward_image")
    ],
    "linear layer": ["Linear::forward", "Linear::backward"],
    "softmax, loss": ["softmax_cross_entropy"],
    "all-reduce, gradient checked": ["CpuReplica::all_reduce_gradients"],
    "update": ["CpuReplica::update"],
}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def counts_of(annotated):
    """(instructions in all, those of each part) from what `callgrind_annotate --inclusive=yes` prints."""
    total, functions = 0, {}
    for line in annotated.splitlines():
        if "PROGRAM TOTALS" in line:
            total = int(line.split()[0].replace(",", ""))
        found = re.match(r"\s*([\d,]+) .*?:convnet::cpu::(?:\(anonymous namespace\)::)?([\w:]+)\(", line)
        if found:
            count, function = int(found[1].replace(",", "")), found[2]
            functions[function] = max(count, functions.get(function, 0))  # a part that OpenMP runs has a line more
    parts = {part: sum(functions.get(name, 0) for name in names) for part, names in PARTS.items()}
    return total, {**parts, "rest": total - sum(parts.values())}


def count_step(options, data):
    """(conditions, instructions, parts) of a step."""
    program = [options.build / "convnet_benchmark", "--data", data, "--isa", "avx2", "--only-steps", "--steps", 3]
    with tempfile.TemporaryDirectory() as folder:
        dumps = Path(folder) / "counts"
        callgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={dumps}", f"--dump-before={STEP_BEGINS}"]
        command = list(map(str, [*callgrind, *program, "--batch", BATCH]))
        run = subprocess.run(command, capture_output=True, text=True, env=environment(OMP_NUM_THREADS="1"))
        if run.returncode != 0:
            sys.exit(f"failed: {' '.join(command)}\n{run.stderr}")
        second = Path(f"{dumps}.3")  # what went before the first step, the first, the second; the end has no number
        if not second.exists() or Path(f"{dumps}.4").exists():
            sys.exit(f"callgrind did not meet {STEP_BEGINS} three times")
        annotate = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", second]
        annotated = subprocess.run(annotate, check=True, capture_output=True, text=True).stdout
    made_of = json.loads(run.stdout)
    return f"{made_of['build']}; {made_of['libraries']}", *counts_of(annotated)


def change(now, before):
    return f"{now / before - 1:+.2%}" if before else "new"


def table(parts, total, recorded):
    lines = ["| part | instructions | share | against the record |", "| --- | ---: | ---: | ---: |"]
    for part, count in parts.items():
        against = change(count, recorded["parts"].get(part, 0)) if recorded else ""
        lines.append(f"| {part} | {count:,} | {count / total:.1%} | {against} |")
    return "\n".join(lines)


def verdict(total, parts, recorded):
    """(exit code, what to say) of counts beside the recorded ones."""
    before = recorded["instructions"]
    more = ["the step"] if total > (1 + LIMIT) * before else []
    for part, count in parts.items():
        past = recorded["parts"].get(part, 0)
        if count > (1 + LIMIT) * past and count - past > SMALL * before:
            more.append(part)
    if more:
        return 1, (
            f"More than {LIMIT:.0%} above the record: {'; '.join(more)}. It got slower, or does more for a reason, with "
            "which instruction_count.py --renew records the new counts"
        )
    if total < (1 - LIMIT) * before:
        return 0, "A step has fewer instructions: instruction_count.py --renew makes the gain the record"
    return 0, f"As on record, within {LIMIT:.0%}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--renew", action="store_true", help=f"write the count to {RECORD.name}")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        skip("there is no valgrind (jobs/install_dependencies.sh --tests installs it)")
    if " avx2 " not in Path("/proc/cpuinfo").read_text():
        skip("this processor has no AVX2, which valgrind can only pass on")
    with data_file(options) as data:
        conditions, total, parts = count_step(options, data)
    records = json.loads(RECORD.read_text())
    recorded = records.get(conditions)
    beside = f" ({change(total, recorded['instructions'])} against {recorded['instructions']:,})" if recorded else ""
    print(f"{total:,} instructions{beside} in a step of {BATCH} images on one thread, AVX2; {conditions}\n")
    print(table(parts, total, recorded) + "\n", flush=True)
    if options.renew:
        records[conditions] = {"instructions": total, "parts": parts}
        RECORD.write_text(json.dumps(records, indent=2) + "\n")
        return 0
    if recorded is None:
        skip("no count is on record for these conditions; --renew adds one")
    code, text = verdict(total, parts, recorded)
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
