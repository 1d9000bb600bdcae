"""A training step on a simulated cluster, by SimGrid's SMPI (Debian: libsimgrid-dev)."""
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# SMPI's names of the algorithms whose formulas model.py has.
ALGORITHMS = {"recursive_doubling": "rdb", "rabenseifner": "rab", "ring": "lr"}
# Only the platform's constants shall count. SMPI's default model corrects latency and bandwidth by message size
# (smpi/lat-factor, smpi/bw-factor) and charges each send (smpi/os, smpi/or): CM02 has factors of 1, and the charges
# are 0. Nor do acknowledgements take bandwidth, a window of TCP bound it, or this machine's own time count.
SETTINGS = {
    "network/model": "CM02",
    "network/latency-factor": 1,
    "network/bandwidth-factor": 1,
    "network/weight-S": 0,
    "network/crosstraffic": 0,
    "network/TCP-gamma": 1e18,
    "smpi/os": "0:0:0",
    "smpi/or": "0:0:0",
    "smpi/simulate-computation": "no",
    "smpi/privatization": "no",
}
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="cluster" prefix="node" suffix="" radical="0-{last}" speed="1Gf" bw="{bandwidth}Bps" lat="{latency}s"
           sharing_policy="SPLITDUPLEX"/>
</platform>
"""


def is_available():
    return shutil.which("smpirun") is not None and shutil.which("smpicxx") is not None


def step_seconds(ranks, algorithm, link, gradient_bytes, compute_microseconds, steps=3):
    """Simulated seconds of a step, one rank a node; a message passes two links, each of half its latency."""
    alpha, beta = link
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        platform = PLATFORM.format(last=ranks - 1, bandwidth=1 / beta, latency=alpha / 2)
        (folder / "platform.xml").write_text(platform)
        (folder / "hosts").write_text("".join(f"node{i}\n" for i in range(ranks)))
        subprocess.run(["smpicxx", "-O2", "-o", folder / "step", HERE / "simulated_step.cpp"], check=True)
        settings = {**SETTINGS, "smpi/allreduce": ALGORITHMS[algorithm]}
        command = ["smpirun", "-np", ranks, "-platform", folder / "platform.xml", "-hostfile", folder / "hosts"]
        command += [f"--cfg={key}:{value}" for key, value in settings.items()] + ["--log=root.thres:error"]
        command += [folder / "step", gradient_bytes, steps, compute_microseconds]
        result = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    return float(result.stdout.split()[-1])
