"""Where the programs and the data are that the tools of this folder run."""
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def environment(**more):
    """Open MPI refuses to start as root unless told twice."""
    allow_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **(allow_root if os.getuid() == 0 else {}), **more}


def add_options(parser):
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="build folder (build/release)")
    parser.add_argument("--data", type=Path, help="data file; made of data/ if not given")


@contextlib.contextmanager
def data_file(options):
    """The data file asked for, or one made for the while."""
    if options.data:
        yield options.data
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mnist.h5"
        convert = [options.build / "convnet", "convert", ROOT / "data", file]
        subprocess.run(convert, check=True, stdout=sys.stderr, env=environment())
        yield file
