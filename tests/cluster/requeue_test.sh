#!/usr/bin/env bash
# jobs/requeue.sbatch: however it is interrupted, it ends with the steps and the weights of a run that never was.
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
epochs=16
long=(--batch 25 --threads 1 --device cpu --epochs "$epochs")
two_hosts=(--nodes=2 --ntasks-per-node=2 --cpus-per-task=1)

submit_long() {
  OUTPUT=$work/output submit "${two_hosts[@]}" "$@" jobs/requeue.sbatch "${long[@]}"
}

# The run, pieces so far together, must get beyond an epoch.
reaches() {
  wait_until 60 "job $job is beyond epoch $1" is_beyond "$1"
}

is_beyond() {
  grep -q "\"event\":\"epoch_end\",\"epoch\":$1," "$work/output/train.jsonl"
}

# expect_the_run_of_one_host RESTARTS: the job is done, after so many restarts.
expect_the_run_of_one_host() {
  expect_end COMPLETED 120
  expect_equal "restarts of job $job" "$1" "$(job_field Restarts)"
  expect_equal "times it went on from a checkpoint" "$1" "$(grep -c "^Resuming .*/step-" "$work/$job.out")"
  expect_weights_of_one_host "$work/$job.out" 4 --epochs "$epochs"
  expect_said "\"steps\":$((20 * epochs))" "$work/output/train.jsonl"
}

test_a_job_preempted_twice_ends_as_if_it_never_was() {
  submit_long
  reaches 3
  on cnctl scontrol requeue "$job"
  reaches 7
  on cnctl scontrol requeue "$job"
  expect_the_run_of_one_host 2
  expect_equal "times it stopped in order" 2 "$(grep -c "^Stopped by SIGTERM" "$work/$job.out")"
}

test_a_job_told_twice_that_its_time_is_over_requeues_itself() {
  submit_long
  reaches 3
  on cnctl scancel --signal=USR1 "$job"
  reaches 7
  on cnctl scancel --signal=USR1 "$job"
  expect_the_run_of_one_host 2
  expect_equal "times it stopped in order" 2 "$(grep -c "^Stopped by SIGUSR1" "$work/$job.out")"
}

test_a_job_with_too_little_time_takes_a_second_piece() {
  submit_long --time=00:01:00 --signal=USR1@50
  reaches 3
  local rank
  rank=$(ranks_on cn2 | tail -n 1) # held until the time comes, so that a fast machine is not done before
  on cn2 kill -STOP "$rank"
  wait_until 60 "Slurm has told job $job that its time is over" has_been_told "$rank"
  on cn2 kill -CONT "$rank" 2>/dev/null || true # Slurm may have let it go on
  wait_until 60 "job $job has stopped" grep -q "^Stopped by SIGUSR1" "$work/$job.out"
  on cnctl scontrol update job "$job" TimeLimit=10
  expect_the_run_of_one_host 1
}

# SIGUSR1 waits for the rank (it is bit 9 of a mask in hexadecimal), or has reached it already.
has_been_told() {
  on cn2 grep -q '^ShdPnd:.*[2367abef]..$' "/proc/$1/status" || grep -q "^Stopped by SIGUSR1" "$work/$job.out"
}

test_a_cancelled_job_stays_cancelled_and_leaves_a_checkpoint() {
  submit_long
  reaches 3
  on cnctl scancel "$job"
  expect_end CANCELLED
  submit_long # the same OUTPUT
  expect_end COMPLETED
  expect_not_said "Epoch [3/$epochs]" "$work/$job.out"
  expect_weights_of_one_host "$work/$job.out" 4 --epochs "$epochs"
}

test_a_job_that_is_done_says_so_when_submitted_again() {
  long=(--batch 25 --threads 1 --device cpu --epochs 2)
  submit_long
  expect_end COMPLETED
  submit_long
  expect_end COMPLETED
  expect_not_said "Epoch [" "$work/$job.out"
  expect_weights_of_one_host "$work/$job.out" 4
}

test_a_job_that_fails_is_not_requeued() {
  OUTPUT=$work/output submit "${two_hosts[@]}" jobs/requeue.sbatch --data "$CLUSTER/nothing.h5"
  expect_end FAILED
  expect_equal "restarts of job $job" 0 "$(job_field Restarts)"
}

run_tests "$@"
