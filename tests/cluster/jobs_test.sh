#!/usr/bin/env bash
# The batch scripts of jobs/, submitted as users do, with sizes that two small hosts have. A host's "GPUs" are none that
# a program could use, so that scripts for GPUs are told to train on the CPU.
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
two_hosts=(--nodes=2 --ntasks-per-node=2 --cpus-per-task=1)
gpus=(--gpus-per-node=2)

test_the_cpu_job_trains_on_two_hosts_as_on_one() {
  OUTPUT=$work/output submit "${two_hosts[@]}" jobs/cpu.sbatch --batch 25
  expect_end COMPLETED
  expect_weights_of_one_host "$work/$job.out" 4
  expect_said '"event":"run_end"' "$work/output/train.jsonl"
}

test_the_single_node_job_starts_one_task_for_each_gpu() {
  OUTPUT=$work/output DEVICE=cpu submit --ntasks-per-node=2 --cpus-per-task=1 "${gpus[@]}" jobs/single_node.sbatch \
    --batch 25 --threads 1
  expect_end COMPLETED
  expect_weights_of_one_host "$work/$job.out" 2
  expect_said '"event":"run_end"' "$work/output/train.jsonl"
}

test_the_jobs_for_gpus_fail_rather_than_train_on_the_cpu() {
  OUTPUT=$work/output submit --ntasks-per-node=2 --cpus-per-task=1 "${gpus[@]}" jobs/single_node.sbatch
  expect_end FAILED
  expect_equal "exit code" 69:0 "$(job_field ExitCode)"
  OUTPUT=$work/output submit "${two_hosts[@]}" "${gpus[@]}" jobs/multi_node.sbatch
  expect_end FAILED
  expect_equal "exit code" 69:0 "$(job_field ExitCode)"
}

test_the_multi_node_job_trains_on_two_hosts_as_on_one() {
  OUTPUT=$work/output DEVICE=cpu submit "${two_hosts[@]}" "${gpus[@]}" jobs/multi_node.sbatch --batch 25 --threads 1
  expect_end COMPLETED
  expect_weights_of_one_host "$work/$job.out" 4
}

test_the_multi_node_job_goes_on_when_submitted_again() {
  local long=(--batch 25 --threads 1 --epochs 16)
  local again=("${two_hosts[@]}" "${gpus[@]}" jobs/multi_node.sbatch "${long[@]}")
  export OUTPUT=$work/output DEVICE=cpu
  submit "${again[@]}"
  wait_until 60 "job $job trains" grep -qF "Epoch [4/16]" "$work/$job.out"
  on cnctl scancel --signal=USR1 "$job"
  expect_end FAILED
  expect_equal "exit code" 75:0 "$(job_field ExitCode)"
  submit "${again[@]}"
  expect_end COMPLETED
  expect_not_said "Epoch [3/16]" "$work/$job.out"
  expect_weights_of_one_host "$work/$job.out" 4 --epochs 16
}

test_the_sweep_job_runs_each_value_and_sums_up() {
  OUTPUT=$work/output OPTION=seed VALUES="5 6 7" submit --array=0-2 --cpus-per-task=1 jobs/sweep.sbatch \
    --batch 25 --device cpu --threads 1
  expect_end COMPLETED
  local seed weights
  for seed in 5 6 7; do
    expect_weights_of_one_host "$work/output/seed-$seed.txt" 1 --seed $seed
    expect_said '"event":"run_end"' "$work/output/seed-$seed.jsonl"
    weights=$(one_host_weights 1 --seed $seed)
    grep -qE "^seed $seed +test accuracy [0-9.]+ % +weights ${weights:0:12}$" "$work/output/summary.txt" ||
      fail "expected a line of seed $seed in the summary, found: $(cat "$work/output/summary.txt")"
  done
  expect_equal "lines of the summary" 3 "$(wc -l <"$work/output/summary.txt")"
}

test_a_sweep_with_too_few_values_fails() {
  OUTPUT=$work/output VALUES="0.1" submit --array=1 --cpus-per-task=1 jobs/sweep.sbatch
  expect_end FAILED
  expect_said "the array has more elements than there are VALUES" "$work/$job.out"
}

test_a_job_that_fails_in_training_fails() {
  OUTPUT=$work/output submit "${two_hosts[@]}" jobs/cpu.sbatch --data "$CLUSTER/nothing.h5"
  expect_end FAILED
  expect_equal "exit code" 74:0 "$(job_field ExitCode)"
}

run_tests "$@"
