# shellcheck shell=bash disable=SC2154 # device_check.sh, which reads this file, sets its variables
# What a stage of device_check.sh records, and what stages work with.

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
  exit "$skipped"
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
