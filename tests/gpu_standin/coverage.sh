#!/usr/bin/env bash
# Prints which lines of src/compute/cuda the tests on the stand-in have run, file by file, and those that none has:
#
#   coverage.sh GCOV SOURCE_FOLDER BUILD_FOLDER
#
# Fails where a part of it is not tested any more. Forgets the counts, for the next run of all tests.
set -euo pipefail
gcov=$1
source=$2
build=$3
readonly least=97 # per cent: compilers differ in which lines they count

mapfile -d '' -t counts < <(find "$build" -name '*.gcda' -print0)
if [ ${#counts[@]} -eq 0 ]; then
  echo "no counts under $build: no test on the stand-in has run" >&2
  exit 1
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$gcov" --stdout --source-prefix "$source" --relative-only "${counts[@]}" >lines 2>errors || {
  cat errors >&2
  exit 1
}
find "$build" -name '*.gcda' -delete

awk -F: -v least="$least" '
  $3 == "Source" || $2 ~ /^ *0$/ { if ($3 == "Source") file = $4; next }
  file !~ /^src\/compute\/cuda\// { next }
  {
    count = $1; gsub(/[ *]/, "", count); line = $2 + 0
    if (count == "-" || count == "") next
    key = file SUBSEP line
    if (!(key in seen)) { seen[key] = 1; total[file]++; ran[key] = 0 }
    if (count !~ /^[#=]/ && !ran[key]) { ran[key] = 1; covered[file]++ }
    sub(/^[^:]*:[^:]*:/, ""); text[key] = $0
  }
  END {
    for (file in total) {
      printf "%6.1f %%  %4d of %4d lines  %s\n", 100 * covered[file] / total[file], covered[file], total[file], file | "sort -k6"
      all += total[file]; good += covered[file]
    }
    close("sort -k6")
    for (key in seen) if (!ran[key]) { split(key, part, SUBSEP); printf "never run: %s:%d:%s\n", part[1], part[2], text[key] | "sort -t: -k2,2 -k3,3n" }
    close("sort -t: -k2,2 -k3,3n")
    if (!all) { print "no line of src/compute/cuda was counted"; exit 1 }
    printf "Line coverage of src/compute/cuda: %.1f %% (%d of %d lines; expected at least %d %%)\n", 100 * good / all, good, all, least
    exit 100 * good < least * all
  }' lines
