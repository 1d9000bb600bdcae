# shellcheck shell=bash
# What the cluster tests share. A test is a function test_..., whose name is a sentence about behaviour; a test file
# ends with run_tests "$@", which runs those that it is given, or all of its own. Exit code 77: no cluster can be here.
set -euo pipefail
export CLUSTER=${CLUSTER:-/var/tmp/convnet-cluster}
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
checkout=$CLUSTER/checkout # of the project, as both hosts see it
# A run of 20 steps an epoch on 4 ranks, with as many threads everywhere: its weights depend on ranks and options alone.
options=(--data "$checkout/output/mnist.h5" --device cpu --threads 1 --batch 25)
train=("$checkout/build/release/convnet" train "${options[@]}")
as_root=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1)

# on HOST [X=Y...] COMMAND...: in the checkout; cnctl is where jobs are submitted.
on() {
  local host=$1
  shift
  "$tests/two_hosts.sh" on "$host" env --chdir="$checkout" "${as_root[@]}" "$@"
}

# run COMMAND...: leaves its exit code in $status, what it said in the file $said.
run() {
  status=0
  "$@" >"$said" 2>&1 </dev/null || status=$?
}

fail() {
  echo "FAILED: $*"
  for file in "$said" "$work"/*.out; do
    if [ -s "$file" ]; then echo "--- ${file#"$CLUSTER/"}:"; cat "$file"; fi
  done
  exit 1
}

expect_status() {
  [ "$status" -eq "$1" ] || fail "expected exit code $1, found $status"
}

expect_said() {
  grep -qF -- "$1" "${2:-$said}" || fail "expected the words \"$1\" in ${2:-$said}"
}

expect_not_said() {
  ! grep -qF -- "$1" "${2:-$said}" || fail "did not expect the words \"$1\" in ${2:-$said}"
}

expect_equal() { # WHAT EXPECTED FOUND
  [ "$2" = "$3" ] || fail "$1: expected \"$2\", found \"$3\""
}

weights_in() {
  sed -n 's/^Weights SHA-256: //p' "$1"
}

# The weights that a run of so many ranks on one host ends with: one_host_weights RANKS OPTIONS...
one_host_weights() {
  local file
  file=$CLUSTER/reference/$(tr -c '[:alnum:].-' _ <<<"$*")
  if [ ! -s "$file" ]; then
    mkdir -p "$CLUSTER/reference"
    on cn1 mpirun --oversubscribe --bind-to none -n "$1" "${train[@]}" "${@:2}" >"$file.said" 2>&1 </dev/null ||
      fail "the run on one host: $(cat "$file.said")"
    weights_in "$file.said" >"$file"
  fi
  cat "$file"
}

# expect_weights_of_one_host FILE RANKS OPTIONS...: FILE holds what a run said, to its end.
expect_weights_of_one_host() {
  expect_equal "weights in $1" "$(one_host_weights "${@:2}")" "$(weights_in "$1")"
}

# submit OPTIONS... SCRIPT...: leaves the number in $job; what the job says goes to $work/NUMBER.out.
submit() {
  job=$(on cnctl sbatch --parsable --output="$work/%A.out" "$@" 2>"$said") || fail "sbatch $*"
}

job_state() {
  on cnctl scontrol show job "$job" --oneliner | sed 's/.*JobState=\([A-Z_]*\).*/\1/' | sort -u | paste -s -d ' '
}

job_field() { # NAME
  on cnctl scontrol show job "$job" --oneliner | sed "s/.* $1=\([^ ]*\).*/\1/"
}

# wait_until SECONDS WHAT COMMAND...
wait_until() {
  local seconds=$1 what=$2 end=$((SECONDS + $1))
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || fail "after $seconds s it is still not so that $what"
    sleep 0.2
  done
}

job_is() {
  [ "$(job_state)" = "$1" ]
}

# The job must end, and as expected: expect_end STATE [SECONDS]
expect_end() {
  wait_until "${2:-60}" "job $job has ended" job_has_ended
  expect_equal "state of job $job" "$1" "$(job_state)"
}

# Of an array, all elements. A job that is being requeued passes through states that are no end.
job_has_ended() {
  local end='(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)'
  [[ $(job_state) =~ ^$end(\ $end)*$ ]]
}

hosts_are_idle() {
  [ "$(on cnctl sinfo --noheader --format %T | sort -u)" = idle ]
}

# The ranks that run on a host, as process numbers: the hosts share those.
ranks_on() {
  on "$1" pgrep --exact convnet --ns "$(cat "$CLUSTER/$1.pid")" --nslist uts
}

has_slurmd() {
  on "$1" pgrep --pidfile "$CLUSTER/slurmd-$1.pid" >/dev/null 2>&1
}

# Leaves the cluster as the next test wants it.
clean_up() {
  local host
  on cnctl scancel --user root || true
  for host in cn1 cn2; do
    on cnctl ip link set "link-$host" up
    has_slurmd "$host" || "$tests/two_hosts.sh" slurmd "$host"
  done
  wait_until 60 "both hosts are idle again" hosts_are_idle
}

run_tests() {
  local name names=("$@")
  "$tests/two_hosts.sh" check || exit $?
  if [ ${#names[@]} -eq 1 ]; then
    run_test "$1"
    return
  fi
  if [ ${#names[@]} -eq 0 ]; then mapfile -t names < <(compgen -A function test_); fi
  for name in "${names[@]}"; do "$0" "$name"; done
}

run_test() {
  work=$CLUSTER/tests/$1
  said=$work/said
  rm -rf "$work"
  mkdir -p "$work"
  set -E # a command that fails outside of what the test expects is a failure too, and must not be a silent one
  trap 'echo "FAILED at ${BASH_SOURCE[0]##*/}:$LINENO: $BASH_COMMAND (exit code $?)"' ERR
  trap clean_up EXIT
  "$1"
  echo "passed: ${1//_/ }"
}
