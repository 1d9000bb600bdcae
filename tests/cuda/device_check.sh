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
#   tests          ctest -L cuda with REQUIRE_GPU=1, without those on the stand-in
#   golden         the losses that PyTorch recorded, step by step, on the GPU
#   seed           the tutorial's run: test images read rightly after each epoch, beside PyTorch's
#   deterministic  the same run twice, bit for bit; and launched as CUDA graphs and one by one, bit for bit
#   onecycle       the recipe onecycle
#   speed          time of a step: batches x graph x kernels x precision, and autotuned
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
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
script=$root/tests/cuda/device_check.sh
readonly all_stages="facts build tests golden seed deterministic onecycle speed pytorch ranks sanitizer profile kernels"
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
    speed | pytorch) echo 120 ;;
    *) return 1 ;;
  esac
}

# --- What a stage records ----------------------------------------------------------------------------------------

# A text as JSON.
quoted() {
  printf '"%s"' "$(printf '%s' "$1" | tr '\n\t' '  ' | tr -d '\000-\037' | sed 's/[\\"]/\\&/g')"
}

# A value as JSON: numbers, true, false and null bare, all else quoted.
json_value() {
  if [[ $1 =~ ^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$ || $1 =~ ^(true|false|null)$ ]]; then
    printf '%s' "$1"
  else
    quoted "$1"
  fi
}

# json_object NAME VALUE NAME VALUE...
json_object() {
  local separator='{'
  while [ $# -gt 0 ]; do
    printf '%s%s:%s' "$separator" "$(quoted "$1")" "$(json_value "$2")"
    separator=,
    shift 2
  done
  printf '}\n'
}

# fact NAME VALUE: a figure of the stage that is running.
fact() {
  printf '%s:%s\n' "$(quoted "$1")" "$(json_value "$2")" >>"$records/$stage.facts"
  echo "$1: $2"
}

# item NAME VALUE NAME VALUE...: a line of the table of the stage that is running.
item() {
  json_object "$@" | tee -a "$records/$stage.items"
}

# Says why the stage failed; it goes on, and fails at its end.
failed() {
  echo "FAILED: $*"
  printf '%s\n' "$(quoted "$*")" >>"$records/$stage.failures"
}

skip() {
  fact skipped "$*"
  exit $skipped
}

# --- Tools for the stages ----------------------------------------------------------------------------------------

# bounded SECONDS COMMAND...: stays in the stage's process group, which ends with the stage.
bounded() {
  timeout --foreground --kill-after=3 "$@"
}

# Python with the system's own libraries, not with those packed for the build.
python() {
  if [ -n "${CHECK_SYSTEM_LIBRARIES:-}" ]; then
    env LD_LIBRARY_PATH="$CHECK_SYSTEM_LIBRARIES" python3 "$@"
  else
    env -u LD_LIBRARY_PATH python3 "$@"
  fi
}

# field NAME: the value of a field in each JSON line read; the first of that name, number or text.
field() {
  sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"
}

# events LOG KIND
events() {
  grep "\"event\":\"$2\"" "$1" || true
}

weights_of() {
  events "$1" run_end | field weights_sha256
}

# train NAME SECONDS OPTION...: one run of the program on one rank, logged to $work/NAME.jsonl.
train() {
  local name=$1 seconds=$2
  shift 2
  rm -f "$work/$name.jsonl"
  bounded "$seconds" "$program" train --data "$data" --device cuda --log "$work/$name.jsonl" "${short_run[@]}" "$@" \
    >"$work/$name.txt" 2>&1
}

# What a failed run said last.
last_words() {
  grep -v '^-*$' "$work/$1.txt" | tail -n 1 | cut -c 1-200
}

run_as_ranks() {
  mpiexec --oversubscribe --bind-to none "$@"
}

# cut_idx FILE.gz IMAGES TO: the first so many records of an IDX file.
cut_idx() {
  local file=$1 count=$2 to=$3 header=8 record=1 big_endian
  printf -v big_endian '\\x%02x' $((count >> 24 & 255)) $((count >> 16 & 255)) $((count >> 8 & 255)) $((count & 255))
  case $file in *images*) header=16 record=784 ;; esac
  {
    gzip -dc "$file" 2>/dev/null | head -c 4
    printf '%b' "$big_endian"
    gzip -dc "$file" 2>/dev/null | tail -c +9 | head -c "$((header - 8 + count * record))"
  } >"$to" || true # gzip's pipe breaks when enough is read
}

# The data file with the first images alone, for tools that slow the program down.
make_small_data() {
  local images=$work/images count_train count_test
  if [ -s "$small_data" ]; then return; fi
  read -r count_train count_test <<<"$CHECK_IMAGES"
  mkdir -p "$images"
  cut_idx "$root/data/train-images-idx3-ubyte.gz" "$count_train" "$images/train-images-idx3-ubyte"
  cut_idx "$root/data/train-labels-idx1-ubyte.gz" "$count_train" "$images/train-labels-idx1-ubyte"
  cut_idx "$root/data/t10k-images-idx3-ubyte.gz" "$count_test" "$images/t10k-images-idx3-ubyte"
  cut_idx "$root/data/t10k-labels-idx1-ubyte.gz" "$count_test" "$images/t10k-labels-idx1-ubyte"
  "$program" convert "$images" "$small_data"
}

# --- Facts and build ---------------------------------------------------------------------------------------------

ask_gpu() {
  nvidia-smi --query-gpu="$1" --format=csv,noheader | head -n 1
}

# macro HEADER NAME: the number that a header defines.
macro() {
  sed -n "s/^#define  *$2  *\([0-9][0-9]*\).*/\1/p" "$1" 2>/dev/null | head -n 1
}

# The folder of PyTorch's own copies of CUDA's libraries, if there is one.
python_libraries() {
  local site
  site=$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null) || return 0
  if [ -d "$site/nvidia" ]; then echo "$site/nvidia"; fi
}

toolkit() {
  local nvcc
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  dirname "$(dirname "$(readlink -f "$nvcc")")"
}

# Where a header or library lies: in the toolkit, the system, or among PyTorch's libraries.
find_cuda_file() {
  local name=$1 folder found
  for folder in "$(toolkit)" /usr/include /usr/lib/x86_64-linux-gnu "$(python_libraries)"; do
    if [ -n "$folder" ] && [ -d "$folder" ]; then
      found=$(find -L "$folder" -maxdepth 5 -name "$name" -print -quit 2>/dev/null)
      if [ -n "$found" ]; then
        echo "$found"
        return
      fi
    fi
  done
}

stage_facts() {
  local header
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi
    fact gpu "$(ask_gpu name)"
    fact driver "$(ask_gpu driver_version)"
    fact compute_capability "$(ask_gpu compute_cap)"
    fact gpu_memory "$(ask_gpu memory.total)"
    fact gpu_clock "$(ask_gpu clocks.max.sm)"
  else
    failed "nvidia-smi was not found"
  fi
  fact nvcc "$("$(toolkit)/bin/nvcc" --version 2>/dev/null | sed -n 's/.*\(release [0-9.]*\).*/\1/p')"
  header=$(find_cuda_file cudnn_version.h)
  fact cudnn "$(macro "$header" CUDNN_MAJOR).$(macro "$header" CUDNN_MINOR).$(macro "$header" CUDNN_PATCHLEVEL) $header"
  header=$(find_cuda_file nccl.h)
  fact nccl "$(macro "$header" NCCL_MAJOR).$(macro "$header" NCCL_MINOR).$(macro "$header" NCCL_PATCH) $header"
  fact cpu "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
  fact cores "$(nproc)"
  fact system "$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release), $(getconf GNU_LIBC_VERSION)"
  fact compiler "$(c++ --version 2>/dev/null | head -n 1)"
  fact cmake "$(cmake --version 2>/dev/null | head -n 1)"
  fact mpi "$(mpiexec --version 2>/dev/null | head -n 1)"
  fact pytorch "$(python -c 'import torch; print(torch.__version__)' 2>/dev/null || echo none)"
}

# Options that tell CMake of libraries which only PyTorch brought.
cuda_hints() {
  local header library
  header=$(find_cuda_file cudnn.h)
  library=$(find_cuda_file 'libcudnn.so*')
  if [ -n "$header" ] && [ -n "$library" ]; then
    echo "-DCUDNN_INCLUDE_DIR=$(dirname "$header")"
    echo "-DCUDNN_LIBRARY=$library"
  fi
  header=$(find_cuda_file nccl.h)
  library=$(find_cuda_file 'libnccl.so*')
  if [ -n "$header" ] && [ -n "$library" ]; then
    echo "-DNCCL_INCLUDE_DIR=$(dirname "$header")"
    echo "-DNCCL_LIBRARY=$library"
  fi
}

# A toolkit without cuBLAS, beside a PyTorch that has it: lets compiler and CMake find that one.
lend_cublas() {
  local headers library links=$work/cublas name
  headers=$(dirname "$(find_cuda_file cublas_v2.h)")
  library=$(find_cuda_file 'libcublas.so*')
  case $library in "$(toolkit)"/* | /usr/lib/* | '') return ;; esac
  mkdir -p "$links"
  for name in cublas cublasLt; do
    library=$(find_cuda_file "lib$name.so*")
    ln -sf "$library" "$links/lib$name.so"
    ln -sf "$library" "$links/$(basename "$library")"
  done
  export CPATH="${CPATH:+$CPATH:}$headers" CMAKE_LIBRARY_PATH="${CMAKE_LIBRARY_PATH:+$CMAKE_LIBRARY_PATH:}$links"
}

configure() {
  local capability options
  capability=$(ask_gpu compute_cap | tr -d .)
  if ! [[ $capability =~ ^[0-9]+$ ]]; then
    failed "nvidia-smi names no compute capability: $capability"
    return 1
  fi
  fact architecture "$capability-real"
  mapfile -t options < <(cuda_hints)
  lend_cublas
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCONVNET_TESTS=ON -DCONVNET_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES="$capability-real" "${options[@]}"
}

stage_build() {
  local start=$SECONDS
  if [ -z "${CONVNET_CHECK_PROGRAM:-}" ]; then
    configure || { failed "the configure step failed"; exit 1; }
    fact configure_seconds $((SECONDS - start))
    start=$SECONDS
    cmake --build "$build" --parallel "$(nproc)" || { failed "the build failed"; exit 1; }
    fact build_seconds $((SECONDS - start))
  fi
  if [ "$dry" = true ]; then
    make_small_data
    cp "$small_data" "$data"
  else
    mkdir -p "$(dirname "$data")"
    "$program" convert "$root/data" "$data" || { failed "the data were not converted"; exit 1; }
  fi
}

# --- Is it right? ------------------------------------------------------------------------------------------------

stage_tests() {
  local status=0
  ctest --test-dir "$build" -L cuda -E standin --output-on-failure --no-tests=error --timeout 60 --parallel 4 \
    >"$work/tests.txt" 2>&1 || status=$?
  cat "$work/tests.txt"
  fact total "$(sed -n 's/.*tests failed out of \([0-9]*\).*/\1/p' "$work/tests.txt")"
  fact failed "$(sed -n 's/.* \([0-9]*\) tests failed out of.*/\1/p' "$work/tests.txt")"
  fact not_run "$(grep -cE '\*\*\*(Skipped|Not Run)|\(Skipped\)' "$work/tests.txt" || true)"
  while read -r name; do
    item failed "$name"
  done < <(sed -nE 's/^\s*[0-9]+ - (.*) \((Failed|Timeout|SEGFAULT|Subprocess aborted|Not Run)\)$/\1/p' "$work/tests.txt")
  if [ $status -ne 0 ]; then failed "ctest ended with $status"; fi
}

stage_golden() {
  local status=0
  run_as_ranks -n 1 "$build/fidelity_test" >"$work/golden.txt" 2>&1 || status=$?
  cat "$work/golden.txt"
  fact passed "$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$work/golden.txt")"
  fact on_gpu "$(grep -q '^convnet .* on cuda' "$work/golden.txt" && echo true || echo false)"
  if [ $status -ne 0 ]; then failed "fidelity_test ended with $status"; fi
  if ! grep -q '^convnet .* on cuda' "$work/golden.txt"; then failed "it did not run on the GPU"; fi
}

# record_accuracy NAME PYTORCH...: test images read rightly after each epoch of a run, beside PyTorch's.
record_accuracy() {
  local name=$1 epoch correct
  shift
  events "$work/$name.jsonl" epoch_end >"$work/epochs"
  while read -r epoch correct; do
    item epoch "$epoch" test_correct "$correct" pytorch "${1:-null}"
    shift || true
  done < <(paste -d ' ' <(field epoch <"$work/epochs") <(field test_correct <"$work/epochs"))
}

# last_correct NAME: of the last epoch.
last_correct() {
  events "$work/$1.jsonl" epoch_end | field test_correct | tail -n 1
}

stage_seed() {
  local allowed=3 correct # float64 and PyTorch's float32 differ by 1.5 images: see tests/train/fidelity_test.cpp
  train seed 35 --log-steps || { failed "convnet train: $(last_words seed)"; exit 1; }
  cat "$work/seed.txt"
  record_accuracy seed 7230 8153
  fact steps "$(events "$work/seed.jsonl" step | wc -l)"
  fact weights_sha256 "$(weights_of "$work/seed.jsonl")"
  fact seconds "$(events "$work/seed.jsonl" run_end | field seconds)"
  if [ "$CHECK_STEPS" -gt 0 ]; then return; fi
  correct=$(last_correct seed)
  if [ "$((correct > 8153 ? correct - 8153 : 8153 - correct))" -gt $allowed ]; then
    failed "$correct test images read rightly: expected 8153, give or take $allowed"
  fi
}

stage_onecycle() {
  local correct least=9900
  train onecycle 35 --recipe onecycle || { failed "convnet train: $(last_words onecycle)"; exit 1; }
  record_accuracy onecycle
  fact seconds "$(events "$work/onecycle.jsonl" run_end | field seconds)"
  if [ "$CHECK_STEPS" -gt 0 ]; then return; fi
  correct=$(last_correct onecycle)
  if [ "$correct" -lt $least ]; then failed "$correct test images read rightly: expected at least $least"; fi
}

stage_deterministic() {
  local name sum first=
  for name in once again graph eager; do
    local options=(--deterministic)
    case $name in
      graph) options+=(--cuda-graph on) ;;
      eager) options+=(--cuda-graph off) ;;
    esac
    if ! train "$name" 20 "${options[@]}"; then
      failed "$name: convnet train ${options[*]}: $(last_words "$name")"
      continue
    fi
    sum=$(weights_of "$work/$name.jsonl")
    item run "$name" options "${options[*]}" weights_sha256 "$sum"
    if [ -z "$sum" ]; then failed "$name: the log holds no sum of the weights"; fi
    first=${first:-$sum}
    if [ "$sum" != "$first" ]; then failed "$name: other weights than before"; fi
  done
}

# differences A B: the greatest difference of the losses of two logs, and how many steps both have.
differences() {
  paste -d ' ' <(events "$1" step | field loss) <(events "$2" step | field loss) |
    awk 'NF == 2 { d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d; ++steps }
         END { printf "%.9f %d\n", most, steps }'
}

stage_ranks() {
  local status=0 device most steps count=50
  run_as_ranks -n 2 timeout 20 "$program" train --data "$data" --device cuda --comm mpi --max-steps 2 \
    >"$work/refused.txt" 2>&1 || status=$?
  cat "$work/refused.txt"
  fact refused_with $status
  if [ $status -ne $unavailable ]; then failed "two ranks on one GPU: exit code $status, expected $unavailable"; fi
  if ! grep -qiE 'ranks? 0\b.*\b1\b|ranks? 1\b.*\b0\b' "$work/refused.txt"; then
    failed "the refusal does not name both ranks"
  fi
  if [ "$CHECK_STEPS" -gt 0 ]; then count=$CHECK_STEPS; fi
  for device in cuda cpu; do
    local options=()
    if [ $device = cuda ]; then options=(--comm mpi --share-gpu); fi
    rm -f "$work/ranks_$device.jsonl"
    status=0
    run_as_ranks -n 2 timeout 20 "$program" train --data "$data" --device $device "${options[@]}" --max-steps "$count" \
      "${batch_option[@]}" --log-steps --log "$work/ranks_$device.jsonl" >"$work/ranks_$device.txt" 2>&1 || status=$?
    if [ $status -ne 0 ]; then
      failed "two ranks on $device ended with $status: $(last_words ranks_$device)"
      return
    fi
  done
  read -r most steps < <(differences "$work/ranks_cuda.jsonl" "$work/ranks_cpu.jsonl")
  fact steps "$steps"
  fact greatest_difference_to_cpu "$most"
  if [ "$steps" -ne "$count" ] || ! awk -v most="$most" 'BEGIN { exit !(most <= 1e-4) }'; then
    failed "$steps steps whose losses differ from the CPU's by up to $most: expected $count, and 1e-4"
  fi
}

# sanitize TOOL OPTION...: a few steps under compute-sanitizer; prints what it said.
sanitize() {
  local tool=$1
  shift
  bounded 45 compute-sanitizer --tool "$tool" "$@" --print-limit 20 "$program" train --data "$small_data" \
    --device cuda --cuda-graph off --max-steps 3 "${batch_option[@]}" >"$work/$tool.txt" 2>&1
}

stage_sanitizer() {
  local tool status summary errors
  command -v compute-sanitizer >/dev/null || skip "compute-sanitizer was not found"
  make_small_data
  for tool in memcheck racecheck synccheck; do
    status=0
    # Races inside the libraries' kernels are not ours to mend, and take long to look for.
    local only_ours=(--kernel-regex kns=convnet)
    if [ $tool = memcheck ]; then only_ours=(); fi
    sanitize $tool "${only_ours[@]}" || status=$?
    if ! grep -q SUMMARY "$work/$tool.txt" && [ $status -ne 124 ] && [ ${#only_ours[@]} -gt 0 ]; then
      status=0
      sanitize $tool || status=$? # older ones do not know that option
    fi
    summary=$(sed -n 's/^=* *\([A-Z]* SUMMARY.*\)/\1/p' "$work/$tool.txt" | tail -n 1)
    errors=$(sed -n 's/.* \([0-9][0-9]*\) errors\{0,1\}.*/\1/p' <<<"${summary/(/ }" | tail -n 1)
    item tool $tool exit_code $status summary "$summary" errors "${errors:-null}"
    if [ "${errors:-none}" != 0 ] || [ $status -ne 0 ]; then
      tail -n 60 "$work/$tool.txt"
      failed "$tool: exit code $status, ${summary:-no summary}"
    fi
  done
}

# --- Is it fast? -------------------------------------------------------------------------------------------------

# measure BATCH OPTION...: an item with the time of a step, from the last epoch of a short run.
measure() {
  local batch=$1 rate milliseconds status=0 epochs=2
  shift
  if [ "$batch" -ge 1000 ]; then epochs=4; fi
  train speed 20 --batch "$batch" --epochs $epochs "$@" || status=$?
  rate=$(events "$work/speed.jsonl" epoch_end 2>/dev/null | field images_per_s | tail -n 1)
  if [ $status -ne 0 ] || [ -z "$rate" ]; then
    item batch "$batch" options "$*" exit_code $status error "$(last_words speed)"
    failed "batch $batch $*: exit code $status"
    return
  fi
  milliseconds=$(awk -v batch="$batch" -v rate="$rate" 'BEGIN { printf "%.5f", 1000 * batch / rate }')
  item batch "$batch" options "$*" images_per_s "$rate" ms_per_step "$milliseconds"
}

stage_speed() {
  local batch precision graph kernels
  for batch in $CHECK_BATCHES; do
    for precision in fp32 tf32 bf16; do
      for kernels in fused cudnn; do
        for graph in on off; do
          measure "$batch" --precision $precision --kernels $kernels --cuda-graph $graph
        done
      done
      measure "$batch" --precision $precision --kernels fused --cuda-graph on --autotune
    done
  done
}

stage_pytorch() {
  local line
  if ! python -c 'import torch; assert torch.cuda.is_available()' >/dev/null 2>&1; then
    skip "python3 has no PyTorch that sees a GPU"
  fi
  python "$root/tests/cuda/pytorch_speed.py" "$root/data" --seconds 95 --batches "${CHECK_BATCHES// /,}" |
    while IFS= read -r line; do
      echo "$line"
      printf '%s\n' "$line" >>"$records/$stage.items"
    done || failed "pytorch_speed.py failed"
}

# Reads ncu's table of metrics as CSV; prints an item's fields for each kernel name, means over its launches.
kernels_of_profile() {
  awk '
    function cells(line,   n, i, text) {  # of a line of CSV in which every cell is quoted
      n = split(substr(line, 2, length(line) - 2), cell, "\",\"")
      for (i = 1; i <= n; ++i) gsub(/,/, "", cell[i])
      return n
    }
    /^"ID"/ { n = cells($0); for (i = 1; i <= n; ++i) column[cell[i]] = i; unit_line = NR + 1; next }
    /^"/ && unit_line {
      cells($0)
      if (NR == unit_line) { unit = cell[column["gpu__time_duration.sum"]]; next }
      name = cell[column["Kernel Name"]]
      if (!(name in launches)) order[++names] = name
      ++launches[name]
      for (metric in column) if (metric ~ /__/) sum[name, metric] += cell[column[metric]]
    }
    END {
      for (i = 1; i <= names; ++i) {
        name = order[i]; n = launches[name]
        printf "%s\t%d\t%.3f\t%s\t%.1f\t%.1f\t%.1f\t%d\n", name, n, sum[name, "gpu__time_duration.sum"] / n, unit,
          sum[name, "dram__throughput.avg.pct_of_peak_sustained_elapsed"] / n,
          sum[name, "sm__throughput.avg.pct_of_peak_sustained_elapsed"] / n,
          sum[name, "sm__warps_active.avg.pct_of_peak_sustained_active"] / n,
          sum[name, "launch__registers_per_thread"] / n
      }
    }'
}

stage_profile() {
  local status=0 metrics=gpu__time_duration.sum name launches duration unit dram sm occupancy registers
  command -v ncu >/dev/null || skip "ncu was not found"
  make_small_data
  metrics+=,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__throughput.avg.pct_of_peak_sustained_elapsed
  metrics+=,sm__warps_active.avg.pct_of_peak_sustained_active,launch__registers_per_thread
  bounded 55 ncu --clock-control none --csv --page raw --metrics $metrics --launch-count 150 "$program" train \
    --data "$small_data" --device cuda --cuda-graph off --max-steps 3 "${batch_option[@]}" \
    >"$work/profile.txt" 2>&1 || status=$?
  if grep -q ERR_NVGPUCTRPERM "$work/profile.txt"; then skip "this user may not read the GPU's counters"; fi
  while IFS=$'\t' read -r name launches duration unit dram sm occupancy registers; do
    item kernel "$name" launches "$launches" duration "$duration" unit "$unit" dram_percent "$dram" sm_percent "$sm" \
      occupancy_percent "$occupancy" registers "$registers"
  done < <(kernels_of_profile <"$work/profile.txt")
  if [ ! -s "$records/$stage.items" ]; then
    tail -n 20 "$work/profile.txt"
    failed "ncu ended with $status and showed no kernel"
  fi
}

stage_kernels() {
  local capability
  if [ "$dry" = true ]; then skip "a dry run has no kernels"; fi
  capability=$(ask_gpu compute_cap | tr -d .)
  "$root/tests/cuda/kernel_resources.sh" --nvcc "$(toolkit)/bin/nvcc" --architectures "$capability-real" \
    --include "$root/src" --include "$root/include" --library "$build/libconvnet_cuda.so" \
    "$root"/src/compute/cuda/*.cu ||
    failed "kernel_resources.sh refused the kernels"
}

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
