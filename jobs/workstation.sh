#!/usr/bin/env bash
# Trains under mpirun on this machine, or on those that a hosts file names. Run jobs/quickstart.sh first: it builds the
# program and makes the data file. Other machines must see both under the same path, and be reached by ssh.
#
#   [RANKS=n] [HOSTS=file] jobs/workstation.sh [options of "convnet train"]
#
#   RANKS  ranks in all (2)
#   HOSTS  a line for each machine, with the ranks that it takes: node1 slots=2
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ranks=${RANKS:-2}
hosts=${HOSTS:-}

launch=(mpirun --bind-to none -n "$ranks")
if [ -n "$hosts" ]; then
  launch+=(--hostfile "$hosts")
fi
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # Open MPI asks root to say it twice
fi
exec "${launch[@]}" "$root/build/release/convnet" train --data "$root/output/mnist.h5" "$@"
