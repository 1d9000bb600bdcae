#!/usr/bin/env bash
# What breaks under a running job: Slurm's daemon, a network link, a rank. The job ends or goes on, and the cluster is
# of use again.
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
epochs=16
two_hosts=(--nodes=2 --ntasks-per-node=2 --cpus-per-task=1)
long=(--batch 25 --threads 1 --device cpu --epochs "$epochs")
watched=(--watchdog-seconds 4) # and before Slurm itself misses the host
readonly deadline=45 # of the watchdog, the launcher and Slurm together

start_long() {
  OUTPUT=$work/output submit "${two_hosts[@]}" "$1" "${long[@]}" "${@:2}"
  wait_until 60 "job $job trains" grep -qF "Epoch [3/$epochs], Test" "$work/$job.out"
}

expect_a_new_job_to_train() {
  wait_until 90 "both hosts are idle again" hosts_are_idle
  run on cnctl srun --mpi=pmix --nodes=2 --ntasks=4 "${train[@]}"
  expect_status 0
  expect_weights_of_one_host "$said" 4
}

test_a_job_does_not_notice_that_a_slurmd_is_started_again() {
  start_long jobs/requeue.sbatch
  on cn2 pkill --signal KILL --pidfile "$CLUSTER/slurmd-cn2.pid"
  "$tests/two_hosts.sh" slurmd cn2
  expect_end COMPLETED
  expect_equal "restarts of job $job" 0 "$(job_field Restarts)"
  expect_weights_of_one_host "$work/$job.out" 4 --epochs "$epochs"
}

# The host hangs: its ranks stand still, and nobody answers Slurm.
test_a_job_whose_host_hangs_is_started_again_and_goes_on() {
  start_long jobs/requeue.sbatch
  ranks_on cn2 | xargs "$tests/two_hosts.sh" on cn2 kill -STOP
  on cn2 pkill --signal KILL --pidfile "$CLUSTER/slurmd-cn2.pid"
  wait_until 90 "job $job is to be started again" job_is PENDING
  "$tests/two_hosts.sh" slurmd cn2
  expect_end COMPLETED 90
  expect_equal "restarts of job $job" 1 "$(job_field Restarts)"
  expect_weights_of_one_host "$work/$job.out" 4 --epochs "$epochs"
}

test_a_job_whose_host_is_cut_off_ends_within_the_deadline() {
  start_long jobs/cpu.sbatch "${watched[@]}"
  on cnctl ip link set link-cn2 down
  wait_until $deadline "job $job has failed" job_has_failed
  wait_until $deadline "no rank is left" has_no_ranks
  on cnctl ip link set link-cn2 up
  expect_said "no answer from rank 2 on cn2, rank 3 on cn2" "$work/$job.out"
  expect_a_new_job_to_train
}

job_has_failed() {
  [[ $(job_state) =~ FAILED|NODE_FAIL|COMPLETING ]]
}

has_no_ranks() {
  ! on cnctl pgrep --exact convnet
}

test_a_job_with_a_killed_rank_ends_within_the_deadline() {
  start_long jobs/cpu.sbatch "${watched[@]}"
  on cn2 kill -KILL "$(ranks_on cn2 | tail -n 1)"
  expect_end FAILED $deadline
  expect_a_new_job_to_train
}

test_a_job_with_a_stopped_rank_ends_within_the_deadline() {
  start_long jobs/cpu.sbatch "${watched[@]}"
  on cn2 kill -STOP "$(ranks_on cn2 | tail -n 1)"
  expect_end FAILED $deadline
  grep -qE "no answer from rank [23] on cn2" "$work/$job.out" || fail "expected the stopped rank to be named"
  expect_a_new_job_to_train
}

run_tests "$@"
