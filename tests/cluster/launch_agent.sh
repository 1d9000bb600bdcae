#!/usr/bin/env bash
# Stands in for ssh between the hosts of two_hosts.sh: launch_agent.sh HOST COMMAND..., as Open MPI's plm_rsh_agent.
set -euo pipefail
host=$1
shift
exec nsenter --target "$(cat "$CLUSTER/$host.pid")" --mount --net --uts --ipc --wdns="$CLUSTER" sh -c "$*"
