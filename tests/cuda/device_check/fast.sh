# shellcheck shell=bash disable=SC2154 # device_check.sh, which reads this file, sets its variables
# Stages of device_check.sh: is it fast?

# measure BATCH OPTION...: an item with the time of a step, from the last epoch of a short run; where $estimate has
# the roofline's microseconds, with their share of it too.
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
  local share=() # of the time that it takes
  if [ -n "${estimate:-}" ]; then
    share=(roofline_ms "$(awk -v us="$estimate" 'BEGIN { printf "%.5f", us / 1000 }')"
      roofline_share "$(awk -v us="$estimate" -v ms="$milliseconds" 'BEGIN { printf "%.3f", us / 1000 / ms }')")
  fi
  item batch "$batch" options "$*" images_per_s "$rate" ms_per_step "$milliseconds" "${share[@]}"
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

# How much a step takes beside what roofline.py estimates for this network on an H200. A line goes to the screen at
# each epoch's end alone, so that no launch is cut short before.
stage_launches() {
  local batch precision steps estimate
  for batch in $CHECK_BATCHES; do
    for precision in fp32 tf32; do
      estimate=$(python "$root/tests/benchmark/roofline.py" --microseconds "$batch" $precision || true)
      measure "$batch" --precision $precision --cuda-graph off --log-every 1000000
      for steps in 1 8 32; do
        measure "$batch" --precision $precision --cuda-graph on --steps-per-launch $steps --log-every 1000000
      done
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
