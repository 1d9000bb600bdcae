#!/usr/bin/env bash
# Two hosts and a real Slurm on this one machine, for tests. A host is a few namespaces: it has its own name, address,
# network link, /tmp and /dev/shm, and shares the rest of the file system with the machine, as cluster nodes share a
# home folder. All of it lives in one PID namespace, so that ending its first process ends everything, links included.
#
#   two_hosts.sh up                   start the cluster, or start it afresh; returns when both hosts are idle
#   two_hosts.sh down                 stop it, and remove its folder
#   two_hosts.sh check                can it be started here? Otherwise says why not, and exits with 77
#   two_hosts.sh on HOST COMMAND...   run a command on cn1, cn2 or cnctl, where sbatch and srun are at home
#   two_hosts.sh slurmd HOST          start the host's slurmd again
#
#   CLUSTER          folder for its state (/var/tmp/convnet-cluster); not in /tmp, of which each host has its own
#   REQUIRE_CLUSTER  if set, a cluster that cannot be started is a failure (1), not a skip (77)
set -euo pipefail
script=$(readlink -f "${BASH_SOURCE[0]}")
export CLUSTER=${CLUSTER:-/var/tmp/convnet-cluster}
export SLURM_CONF=$CLUSTER/slurm.conf
export PATH=$PATH:/usr/sbin:/sbin # where daemons lie
readonly hosts="cn1 cn2" subnet=10.77.0

cannot() {
  echo "no cluster on this machine: $1" >&2
  if [ -n "${REQUIRE_CLUSTER:-}" ]; then exit 1; else exit 77; fi
}

check() {
  local tool said
  [ "$(id -u)" -eq 0 ] || cannot "only root can make namespaces with links"
  for tool in slurmctld slurmd srun munged ip nsenter unshare; do
    command -v $tool >/dev/null || cannot "$tool is missing (jobs/install_dependencies.sh --tests installs it)"
  done
  said=$(unshare --pid --fork --kill-child --mount --net --uts --ipc --mount-proc sh -ec \
    'ip link add bridge type bridge; mount -t tmpfs tmpfs /tmp; setpriv --clear-groups true' 2>&1) ||
    cannot "what hosts are made of is not allowed: ${said//$'\n'/; }"
}

# The first process of the cluster, as this machine numbers it. Its command line tells it from one that got its number.
cluster_pid() {
  local pid
  pid=$(cat "$CLUSTER/cluster.pid" 2>/dev/null) && grep -qzF "$script" "/proc/$pid/cmdline" 2>/dev/null && echo "$pid"
}

on() {
  local host=$1 pid
  shift
  if ! pid=$(cluster_pid); then
    echo "two_hosts.sh: the cluster is not up ($CLUSTER)" >&2
    return 1
  fi
  if [ "$host" = cnctl ]; then
    exec nsenter --target "$pid" --pid --mount --net --uts --ipc --wdns="$CLUSTER" "$@"
  fi
  exec nsenter --target "$pid" --pid --mount --net --uts --ipc --wdns="$CLUSTER" "$script" within "$host" "$@"
}

# Called in the cluster's namespaces: enters those of one host.
within() {
  local host=$1
  shift
  exec nsenter --target "$(cat "$CLUSTER/$host.pid")" --mount --net --uts --ipc --wdns="$CLUSTER" "$@"
}

# Slurm can do without since 23; before, its plugin for version 1 asks for nothing until it is used.
cgroup_plugin() {
  local version
  version=$(slurmd -V)
  version=${version##* }
  if [ "${version%%.*}" -ge 23 ]; then echo disabled; else echo cgroup/v1; fi
}

write_configuration() {
  mkdir -p "$CLUSTER"/{ctld,spool-cn1,spool-cn2,munge}
  chmod 755 "$CLUSTER" "$CLUSTER/munge"
  (umask 077 && head -c 64 /dev/urandom >"$CLUSTER/munge/key")
  printf '%s\n' "127.0.0.1 localhost" "$subnet.1 cnctl" "$subnet.11 cn1" "$subnet.12 cn2" >"$CLUSTER/hosts"
  # Times are short, so that tests of failures are: a requeued job waits for its credentials to expire, for example.
  cat >"$SLURM_CONF" <<CONF
ClusterName=two_hosts
SlurmctldHost=cnctl($subnet.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$CLUSTER/munge/socket,cred_expire=5
StateSaveLocation=$CLUSTER/ctld
SlurmdSpoolDir=$CLUSTER/spool-%n
SlurmctldPidFile=$CLUSTER/slurmctld.pid
SlurmdPidFile=$CLUSTER/slurmd-%n.pid
SlurmctldLogFile=$CLUSTER/slurmctld.log
SlurmdLogFile=$CLUSTER/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
MessageTimeout=5
KillWait=5
MinJobAge=600
GresTypes=gpu
NodeName=cn1 NodeAddr=$subnet.11 CPUs=2 RealMemory=4000 Gres=gpu:2
NodeName=cn2 NodeAddr=$subnet.12 CPUs=2 RealMemory=4000 Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP
CONF
  # Nothing here needs control groups, and slurmd must not look for them: containers have them in many ways, or not.
  echo "CgroupPlugin=$(cgroup_plugin)" >"$CLUSTER/cgroup.conf"
  # Two "GPUs" a host, so that jobs can ask for them: Slurm only wants to see a device file for each.
  printf 'Name=gpu File=%s\n' /dev/null /dev/zero >"$CLUSTER/gres.conf"
}

# A process that holds a host's namespaces open, and the link that joins it to the bridge.
start_host() {
  local host=$1 pid
  unshare --mount --net --uts --ipc bash -c "hostname $host && mount -t tmpfs -o mode=1777 tmpfs /tmp &&
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm && touch $CLUSTER/$host.ready && exec sleep infinity" "$script" &
  pid=$!
  echo $pid >"$CLUSTER/$host.pid"
  wait_until 10 "$host has namespaces" test -e "$CLUSTER/$host.ready"
  ip link add "link-$host" type veth peer name eth0 netns $pid
  ip link set "link-$host" master bridge up
  nsenter --target $pid --net sh -ec \
    "ip addr add $subnet.1${host#cn}/24 dev eth0; ip link set eth0 up; ip link set lo up"
  "$script" within "$host" slurmd -N "$host"
}

# The cluster's first process, in namespaces of its own.
run_cluster() {
  local host
  hostname cnctl
  mount --bind "$CLUSTER/hosts" /etc/hosts
  ip link set lo up
  ip link add bridge type bridge
  ip addr add $subnet.1/24 dev bridge
  ip link set bridge up
  munged --socket="$CLUSTER/munge/socket" --key-file="$CLUSTER/munge/key" --pid-file="$CLUSTER/munge/pid" \
    --seed-file="$CLUSTER/munge/seed" --log-file="$CLUSTER/munge/log"
  slurmctld
  for host in $hosts; do start_host "$host"; done
  touch "$CLUSTER/ready"
  while true; do wait || true; sleep 1; done # a first process also reaps what others leave behind
}

# wait_until SECONDS WHAT COMMAND...
wait_until() {
  local seconds=$1 what=$2 end=$((SECONDS + $1))
  shift 2
  until "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge $end ]; then
      echo "two_hosts.sh: after $seconds s it is still not so that $what" >&2
      return 1
    fi
    sleep 0.2
  done
}

are_idle() {
  [ "$("$script" on cnctl sinfo --noheader --format %T | sort -u)" = idle ]
}

up() {
  check
  down
  write_configuration
  setsid unshare --pid --fork --kill-child --mount --net --uts --ipc --mount-proc \
    bash "$script" run_cluster >"$CLUSTER/start.log" 2>&1 </dev/null &
  local outer=$!
  wait_until 10 "the cluster has a first process" pgrep --parent $outer
  pgrep --parent $outer >"$CLUSTER/cluster.pid"
  if ! wait_until 30 "both hosts run" test -e "$CLUSTER/ready" || ! wait_until 30 "both hosts are idle" are_idle; then
    tail -n 20 "$CLUSTER"/*.log "$CLUSTER/munge/log" >&2
    return 1
  fi
  "$script" on cnctl sinfo
}

down() {
  local pid
  if pid=$(cluster_pid); then
    kill -KILL "$pid"
    wait_until 10 "the cluster's processes have ended" test ! -e "/proc/$pid"
  fi
  if [ -e "$SLURM_CONF" ]; then rm -rf "$CLUSTER"; fi # only a folder that a cluster was in
}

case ${1:-} in
  up | down | check | run_cluster) "$1" ;;
  on | within) "$@" ;;
  slurmd) on "$2" slurmd -N "$2" ;;
  *)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$script" | sed '$d' >&2
    exit 2
    ;;
esac
