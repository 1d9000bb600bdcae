"""A training step on a simulated cluster, by SimGrid's SMPI (Debian: libsimgrid-dev)."""
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# SMPI's names of the algorithms whose formulas model.py has.
ALGORITHMS = {"recursive_doubling": "rdb", "rabenseifner": "rab", "ring": "lr"}
NO_COMPUTATION = {"smpi/simulate-computation": "no", "smpi/privatization": "no"}  # nor this machine's own time
# Only the platform's constants shall count. SMPI's default model scales latency and bandwidth by message size
# (smpi/lat-factor, smpi/bw-factor): CM02 has factors of its own, which can be 1. Nor do acknowledgements take
# bandwidth, nor does a window of TCP bound it.
CONSTANTS_ALONE = {
    "network/model": "CM02",
    "network/latency-factor": 1,
    "network/bandwidth-factor": 1,
    "network/weight-S": 0,
    "network/crosstraffic": 0,
    "network/TCP-gamma": 1e18,
}
# Between ranks of a node messages take the loopback, which they do not share; between nodes each rank has a port of
# its own, and a message passes two links, each of half its latency.
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="cluster" prefix="node" suffix="" radical="0-{last}" speed="1Gf" core="{node}"
           bw="{bandwidth}Bps" lat="{latency}s" sharing_policy="SPLITDUPLEX"
           loopback_bw="{inside_bandwidth}Bps" loopback_lat="{inside_latency}s"/>
</platform>
"""


def is_available():
    return shutil.which("smpirun") is not None and shutil.which("smpicxx") is not None


def platform(ranks, network):
    node, (inside_alpha, inside_beta), (alpha, beta) = network["node"], network["inside"], network["between"]
    return PLATFORM.format(last=ranks // node - 1, node=node, bandwidth=node / beta, latency=alpha / 2,
                           inside_bandwidth=1 / inside_beta, inside_latency=inside_alpha)


def step_seconds(ranks, algorithm, network, gradient_bytes, compute_microseconds, corrections=CONSTANTS_ALONE):
    """Simulated seconds of a step, on a network as model.two_level has it. One is enough: all take equally long."""
    node = network["node"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "platform.xml").write_text(platform(ranks, network))
        (folder / "hosts").write_text("".join(f"node{i // node}\n" for i in range(ranks)))
        subprocess.run(["smpicxx", "-O2", "-o", folder / "step", HERE / "simulated_step.cpp"], check=True)
        settings = {**NO_COMPUTATION, **corrections, "smpi/allreduce": ALGORITHMS[algorithm]}
        command = ["smpirun", "-np", ranks, "-platform", folder / "platform.xml", "-hostfile", folder / "hosts"]
        command += [f"--cfg={key}:{value}" for key, value in settings.items()] + ["--log=root.thres:error"]
        command += [folder / "step", gradient_bytes, compute_microseconds, node]
        result = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    return float(result.stdout.split()[-1])
