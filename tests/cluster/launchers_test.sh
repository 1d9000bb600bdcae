#!/usr/bin/env bash
# Who starts the program, and what it makes of that: srun, mpiexec of another MPI, shells inside and outside of jobs.
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

test_srun_over_pmix_trains_on_two_hosts_as_mpirun_on_one() {
  run on cnctl srun --mpi=pmix --nodes=2 --ntasks=4 "${train[@]}"
  expect_status 0
  expect_said "4 ranks on cpu"
  grep -qE '^ +3  cn2 ' "$said" || fail "expected rank 3 on cn2"
  expect_weights_of_one_host "$said" 4
}

test_srun_over_pmi2_trains_all_ranks_together_or_fails() {
  run on cnctl srun --mpi=pmi2 --nodes=2 --ntasks=4 "${train[@]}"
  if [ $status -eq 0 ]; then
    expect_weights_of_one_host "$said" 4
  else
    expect_not_said "Epoch ["
  fi
}

test_srun_without_pmi_is_refused_and_told_the_flag() {
  run on cnctl srun --mpi=none --nodes=2 --ntasks=4 "${train[@]}"
  expect_status 69
  expect_said "srun (Slurm) started this task without PMIx"
  expect_said "srun --mpi=pmix"
  expect_not_said "Epoch ["
}

test_a_step_of_one_task_without_pmi_is_refused_too() {
  run on cnctl srun --mpi=none --ntasks=1 "${train[@]}"
  expect_status 69
  expect_said "srun --mpi=pmix"
}

test_mpiexec_of_mpich_is_refused() {
  if ! command -v mpiexec.hydra >/dev/null; then
    echo "skipped: there is no mpiexec.hydra (package mpich)"
    exit 77
  fi
  run on cn1 mpiexec.hydra -n 2 "${train[@]}"
  expect_status 69
  expect_said "mpiexec (PMI) started 2 tasks, but MPI connects only 1 of them"
  expect_not_said "Epoch ["
}

test_an_allocation_without_a_step_is_one_rank() {
  run on cnctl salloc --nodes=2 --ntasks=4 "${train[@]}"
  expect_status 0
  expect_said "1 rank on cpu"
  expect_weights_of_one_host "$said" 1
}

test_a_batch_script_without_a_step_is_one_rank() {
  submit --nodes=2 --ntasks=4 --wrap "${train[*]}"
  expect_end COMPLETED
  expect_weights_of_one_host "$work/$job.out" 1
}

test_variables_of_an_allocation_that_is_over_say_nothing() {
  run on cn2 SLURM_JOB_ID=4711 SLURM_JOBID=4711 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_NNODES=2 SLURM_PROCID=0 \
    SLURM_JOB_NODELIST="cn[1-2]" SLURM_TASKS_PER_NODE="2(x2)" "${train[@]}"
  expect_status 0
  expect_said "1 rank on cpu"
  expect_weights_of_one_host "$said" 1
}

test_two_jobs_at_once_on_one_node_train_both() {
  submit --nodelist=cn1 --ntasks=1 --wrap "srun --mpi=pmix ${train[*]} --seed 1"
  local first=$job
  submit --nodelist=cn1 --ntasks=1 --wrap "srun --mpi=pmix ${train[*]} --seed 2"
  wait_until 20 "job $job runs beside job $first" are_running "$first" "$job"
  expect_end COMPLETED
  expect_weights_of_one_host "$work/$job.out" 1 --seed 2
  job=$first
  expect_end COMPLETED
  expect_weights_of_one_host "$work/$job.out" 1 --seed 1
}

are_running() {
  [ "$(on cnctl squeue --noheader --states=running --format %i --jobs "$1,$2" | wc -l)" -eq 2 ]
}

test_more_ranks_than_cores_train_the_same() {
  run on cnctl srun --mpi=pmix --overcommit --nodes=2 --ntasks=7 "${train[@]}" --max-steps 5
  expect_status 0
  expect_weights_of_one_host "$said" 7 --max-steps 5
}

test_many_threads_on_one_core_are_warned_of() {
  run on cnctl srun --mpi=pmix --ntasks=1 taskset --cpu-list 0 "${train[@]}" --threads 4 --max-steps 2
  expect_status 0
  expect_said "rank 0 on cn1 has 4 threads but is bound to 1 core"
}

test_an_error_on_one_host_ends_the_job_with_its_code() {
  run on cnctl srun --mpi=pmix --nodes=2 --ntasks=4 "${train[@]}" --data "$CLUSTER/nothing.h5"
  expect_status 74
  expect_said "nothing.h5: cannot open"
}

run_tests "$@"
