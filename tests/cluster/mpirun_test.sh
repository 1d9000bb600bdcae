#!/usr/bin/env bash
# mpirun over two hosts: through Slurm inside a job, and through a launch agent, which takes the place of ssh.
# shellcheck source=tests/cluster/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
through_agent=(--mca plm rsh --mca plm_rsh_agent "$checkout/cluster/launch_agent.sh")

expect_two_hosts() {
  expect_status 0
  grep -qE '^ +0  cn1 ' "$said" || fail "expected rank 0 on cn1"
  grep -qE '^ +3  cn2 ' "$said" || fail "expected rank 3 on cn2"
  expect_weights_of_one_host "$said" 4
}

test_mpirun_in_an_allocation_starts_its_ranks_through_slurm() {
  run on cnctl salloc --nodes=2 --ntasks=4 mpirun --bind-to none "${train[@]}"
  expect_two_hosts
}

test_mpirun_in_an_allocation_starts_its_ranks_through_an_agent() {
  run on cnctl salloc --nodes=2 --ntasks=4 mpirun "${through_agent[@]}" --bind-to none "${train[@]}"
  expect_two_hosts
}

test_mpirun_in_a_batch_script_starts_its_ranks_through_slurm() {
  submit --nodes=2 --ntasks=4 --wrap "mpirun --bind-to none ${train[*]}"
  expect_end COMPLETED
  expect_weights_of_one_host "$work/$job.out" 4
}

test_mpirun_outside_of_slurm_starts_its_ranks_through_an_agent() {
  run on cn1 mpirun "${through_agent[@]}" --host cn1:2,cn2:2 --bind-to none "${train[@]}"
  expect_two_hosts
}

test_the_workstation_script_trains_on_the_hosts_of_a_file() {
  printf '%s slots=2\n' cn1 cn2 >"$work/hosts"
  run on cn1 RANKS=4 HOSTS="$work/hosts" OMPI_MCA_plm=rsh \
    OMPI_MCA_plm_rsh_agent="$checkout/cluster/launch_agent.sh" jobs/workstation.sh "${options[@]}"
  expect_two_hosts
}

run_tests "$@"
