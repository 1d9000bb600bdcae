#!/usr/bin/env bash
# Everything that only a real GPU can prove, in one command of at most ten minutes: builds, runs the tests, trains,
# measures, and writes what came out to results.json and device_check.log.
#
#   tests/cuda/device_check.sh [--dry-run] [STAGE...]
#
# Without names all stages run, in this order; with names only those, and results.json keeps what it had of the others.
# A stage that fails or hangs is recorded, and the next one goes on. Exit code: 0 if every stage that ran passed.
#
#   facts          GPU, driver, compiler, libraries, processor
#   build          configure and build for this GPU alone, with tests; convert the data (goes on beside facts)
#   tests          ctest -L gpu with REQUIRE_GPU=1
#   golden         the losses that PyTorch recorded, step by step, on the GPU
#   seed           the tutorial's run: test images read rightly after each epoch, beside PyTorch's
#   deterministic  the same run twice, bit for bit; and launched as CUDA graphs and one by one, bit for bit
#   onecycle       the recipe onecycle
#   speed          time of a step: batches x graph x kernels x precision, and autotuned
#   launches       time of a step: batches x fp32, tf32 x graph off, or 1, 8 and 32 steps a launch; share of the roofline
#   pytorch        PyTorch's time of a step on the same GPU, where python3 has it
#   ranks          two ranks on one GPU: refused, unless meant; then the CPU's losses
#   sanitizer      compute-sanitizer: memcheck, racecheck, synccheck
#   profile        Nsight Compute: a line for each kernel
#   kernels        what the compiler says of the kernels (kernel_resources.sh)
#
# What it needs beside a compiler, CMake and CUDA it takes from build/device_packages, if pack_dependencies.sh filled
# that folder.
# Variables:
#
#   OUT                    folder for results.json and device_check.log (build/device_check)
#   CHECK_BUILD            build folder (build/device)
#   CHECK_WORK             folder for data, logs of single runs, and what former calls recorded (build/device/check)
#   CHECK_PACKAGES         folder that pack_dependencies.sh filled (build/device_packages)
#   CHECK_SECONDS          for all stages together (570)
#   CHECK_STAGE_SECONDS    for each stage at most
#   CHECK_STEPS            steps of each training run; 0: its epochs (0; dry run: 3)
#   CHECK_BATCHES          batches to measure (100 1000; dry run: 10 20)
#   CHECK_IMAGES           training and test images of the small data set (4000 600; dry run: 200 100)
#   CONVNET_CHECK_PROGRAM  the program to check, instead of one built here
#
# --dry-run checks this script, not a GPU: small sizes, no build, and the program of CHECK_BUILD on the stand-in for a
# GPU.
# shellcheck disable=SC2034 # what the parts in device_check/ use
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
script=$root/tests/cuda/device_check.sh
readonly all_stages="facts build tests golden seed deterministic onecycle speed launches pytorch ranks sanitizer profile kernels"
readonly skipped=77 unavailable=69

# Seconds that a stage may take.
limit_of() {
  case $1 in
    facts) echo 30 ;;
    build) echo 240 ;;
    tests | sanitizer) echo 100 ;;
    golden | profile | kernels) echo 60 ;;
    seed | onecycle) echo 40 ;;
    deterministic | ranks) echo 50 ;;
    speed | pytorch | launches) echo 120 ;;
    *) return 1 ;;
  esac
}

for part in records build right fast; do
  # shellcheck source=/dev/null
  . "$root/tests/cuda/device_check/$part.sh"
done

# --- All stages --------------------------------------------------------------------------------------------------

# Runs one stage, in a process of its own that a time limit ends; records how it ended.
run_stage() {
  local name=$1 limit left status=0 start=$SECONDS outcome log=$work/stage_$1.log
  left=$((deadline - SECONDS))
  limit=$(limit_of "$name")
  rm -f "$records/$name".{facts,items,failures,status}
  if [ $left -lt 3 ]; then
    json_object status out_of_time seconds 0 limit "$limit" >"$records/$name.status"
    echo "$name: no time left" | tee -a "$OUT/device_check.log"
    return 1
  fi
  if [ "$limit" -gt $left ]; then limit=$left; fi
  if [ -n "${CHECK_STAGE_SECONDS:-}" ] && [ "$limit" -gt "$CHECK_STAGE_SECONDS" ]; then limit=$CHECK_STAGE_SECONDS; fi
  timeout --kill-after=5 "$limit" bash "$script" --run-stage "$name" >"$log" 2>&1 </dev/null &
  local group=$! # of all that the stage starts
  wait $group || status=$?
  kill -KILL -- "-$group" 2>/dev/null || true # what it left behind
  case $status in
    0) outcome=passed ;;
    "$skipped") outcome=skipped ;;
    124 | 137) outcome=timed_out ;;
    *) outcome=failed ;;
  esac
  json_object status $outcome exit_code $status seconds $((SECONDS - start)) limit "$limit" >"$records/$name.status"
  { echo "=== $name: $outcome ($((SECONDS - start)) s of $limit)"; cat "$log"; } >>"$OUT/device_check.log"
  printf '%-14s %-10s %4d s  %s\n' "$name" $outcome $((SECONDS - start)) \
    "$(head -n 1 "$records/$name.failures" 2>/dev/null || true)"
  [ $outcome = passed ] || [ $outcome = skipped ]
}

# The lines of a file, joined by commas.
joined() {
  if [ -e "$1" ]; then paste -s -d , "$1"; fi
}

write_results() {
  local name separator='' temporary=$OUT/results.json.tmp
  {
    printf '{"dry_run":%s,"seconds":%d,"stages":{' "$dry" "$SECONDS"
    for name in $all_stages; do
      if [ ! -e "$records/$name.status" ]; then continue; fi
      printf '%s\n"%s":%s' "$separator" "$name" "$(sed 's/}$//' "$records/$name.status")"
      printf ',"facts":{%s}' "$(joined "$records/$name.facts")"
      printf ',"items":[%s]' "$(joined "$records/$name.items")"
      printf ',"failures":[%s]}' "$(joined "$records/$name.failures")"
      separator=,
    done 2>/dev/null
    printf '}}\n'
  } >"$temporary"
  mv "$temporary" "$OUT/results.json"
}

dry=${CHECK_DRY:-false}
stages=()
run_one=
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry=true ;;
    --run-stage) # what this script calls for each stage
      run_one=$2
      shift
      ;;
    -h | --help)
      sed -n '2,/^set /s/^# \{0,1\}//p' "$script" | sed '$d'
      exit 0
      ;;
    *)
      if ! limit_of "$1" >/dev/null; then
        echo "device_check.sh: there is no stage $1 (there are: $all_stages)" >&2
        exit 2
      fi
      stages+=("$1")
      ;;
  esac
  shift
done

build=${CHECK_BUILD:-$root/build/device}
if [ "$dry" = true ]; then
  : "${CHECK_STEPS:=3}" "${CHECK_BATCHES:=10 20}" "${CHECK_IMAGES:=200 100}"
  : "${CONVNET_CHECK_PROGRAM:=$build/gpu_standin/convnet}"
  export CONVNET_CHECK_PROGRAM
fi
: "${CHECK_STEPS:=0}" "${CHECK_BATCHES:=100 1000}" "${CHECK_IMAGES:=4000 600}" "${OUT:=$root/build/device_check}"
program=${CONVNET_CHECK_PROGRAM:-$build/convnet}
work=${CHECK_WORK:-$build/check}
records=$work/records
small_data=$work/small.h5
data=$build/tests/mnist.h5 # where the tests look for it
if [ "$dry" = true ]; then data=$work/data.h5; fi
short_run=()
batch_option=()
if [ "$CHECK_STEPS" -gt 0 ]; then
  short_run=(--max-steps "$CHECK_STEPS")
  batch_option=(--batch "${CHECK_BATCHES%% *}")
  short_run+=("${batch_option[@]}")
fi

if [ -n "$run_one" ]; then
  stage=$run_one
  set +e # a stage looks at what fails, and goes on
  "stage_$stage"
  if [ -s "$records/$stage.failures" ]; then exit 1; fi
  exit 0
fi

mkdir -p "$OUT" "$records"
export CHECK_DRY=$dry CHECK_STEPS CHECK_BATCHES CHECK_IMAGES OUT REQUIRE_GPU=1
export CHECK_SYSTEM_LIBRARIES=${LD_LIBRARY_PATH:-}
if [ "$dry" = true ]; then unset REQUIRE_GPU; fi
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # Open MPI asks root to say it twice
fi
packages=${CHECK_PACKAGES:-$root/build/device_packages}/environment.sh
if [ -e "$packages" ] && [ "$dry" = false ]; then
  # shellcheck source=/dev/null
  . "$packages"
fi
if [ ${#stages[@]} -eq 0 ]; then read -ra stages <<<"$all_stages"; fi

SECONDS=0
deadline=${CHECK_SECONDS:-570}
: >"$OUT/device_check.log"
failures=0
build_process=
for stage in "${stages[@]}"; do
  if [ "$stage" = facts ] && [[ " ${stages[*]} " == *" build "* ]]; then
    run_stage build & # compiles while the facts are taken
    build_process=$!
  fi
  if [ "$stage" = build ] && [ -n "$build_process" ]; then
    wait "$build_process" || failures=$((failures + 1))
  else
    run_stage "$stage" || failures=$((failures + 1))
  fi
  write_results
done
echo "$failures of ${#stages[@]} stages failed, in $SECONDS s: $OUT/results.json"
[ $failures -eq 0 ]
