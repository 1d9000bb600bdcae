#!/bin/sh
# Checks what DESIGN calls the house: check_house_rules.sh ROOT. Prints every breach, and fails if there is one.
#
#   - A folder of src includes only itself and folders to its left: base data model comm compute train app.
#   - compute/cpu and compute/cuda do not include each other; nobody but compute itself includes their headers.
#   - Only compute/cuda includes headers of CUDA's libraries, only compute/cpu those of oneDNN and Highway.
#   - No file of src or include has more than 450 lines.
set -eu
cd "$1"

breaches=$(mktemp)
trap 'rm -f "$breaches"' EXIT

# report RULE: a breach for each line of input ("FILE:LINE:#include ...").
report() {
  while IFS= read -r line; do
    echo "$line  <- $1"
  done >> "$breaches"
}

# includes PATTERN FOLDER...: the include lines of the folders, as far as they exist, whose file begins with PATTERN.
includes() {
  pattern=$1
  shift
  for folder in "$@"; do
    if [ -d "$folder" ]; then
      grep -rnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($pattern)" "$folder" || true
    fi
  done
}

to_the_right="base data model comm compute train app"
for folder in $to_the_right; do
  to_the_right=${to_the_right#"$folder"}
  to_the_right=${to_the_right# }
  if [ -n "$to_the_right" ]; then
    right=$(echo "$to_the_right" | sed 's, ,/|,g')/
    includes "$right" "src/$folder" | report "src/$folder may include only folders to its left"
  fi
done
includes '(base|data|model|comm|compute|train|app)/' include | report "a public header includes public headers alone"

includes 'compute/cuda/' src/compute/cpu | report "compute/cpu does not know compute/cuda"
includes 'compute/cpu/' src/compute/cuda | report "compute/cuda does not know compute/cpu"
includes 'compute/(cpu|cuda)/' src/train src/app | report "a back end is used through compute/backend.hpp"

cuda='cuda|cudnn|cublas|nccl|nvml|nvrtc|nvtx'
includes "$cuda" include src/base src/data src/model src/comm src/compute src/train src/app |
  grep -v '^src/compute/cuda/' | report "only compute/cuda includes CUDA's headers"

includes 'dnnl|hwy/' include src/base src/data src/model src/comm src/compute src/train src/app |
  grep -v '^src/compute/cpu/' | report "only compute/cpu includes oneDNN and Highway"

find include src -type f | while IFS= read -r file; do
  lines=$(wc -l < "$file")
  if [ "$lines" -gt 450 ]; then
    echo "$file:$lines:" | report "no file is longer than 450 lines"
  fi
done

cat "$breaches"
[ ! -s "$breaches" ]
