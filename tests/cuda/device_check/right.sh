# shellcheck shell=bash disable=SC2154 # device_check.sh, which reads this file, sets its variables
# Stages of device_check.sh: is it right?

stage_tests() {
  local status=0
  ctest --test-dir "$build" -L gpu --output-on-failure --no-tests=error --timeout 60 --parallel 4 \
    >"$work/tests.txt" 2>&1 || status=$?
  cat "$work/tests.txt"
  fact total "$(sed -n 's/.*tests failed out of \([0-9]*\).*/\1/p' "$work/tests.txt")"
  fact failed "$(sed -n 's/.* \([0-9]*\) tests failed out of.*/\1/p' "$work/tests.txt")"
  fact not_run "$(grep -cE '\*\*\*(Skipped|Not Run)|\(Skipped\)' "$work/tests.txt" || true)"
  while read -r name; do
    item failed "$name"
  done < <(sed -nE 's/^\s*[0-9]+ - (.*) \((Failed|Timeout|SEGFAULT|Subprocess aborted|Not Run)\)$/\1/p' "$work/tests.txt")
  if [ $status -ne 0 ]; then failed "ctest ended with $status"; fi
  if grep -q "(Skipped)" "$work/tests.txt"; then failed "tests were skipped, though REQUIRE_GPU is set"; fi
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
  if [ $status -ne "$unavailable" ]; then failed "two ranks on one GPU: exit code $status, expected $unavailable"; fi
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
