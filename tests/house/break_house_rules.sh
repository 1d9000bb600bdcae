#!/bin/sh
# Breaks each house rule in a small tree of its own, and fails unless check_house_rules.sh notices.
set -eu
check=$(dirname "$0")/check_house_rules.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# expect clean|breach FILE LINE: how the check ends where the tree is FILE with this one LINE.
expect() {
  rm -rf "$tree/src" "$tree/include"
  mkdir -p "$tree/src" "$tree/include" "$(dirname "$tree/$2")"
  echo "$3" > "$tree/$2"
  found=clean
  "$check" "$tree" > "$tree/report" || found=breach
  if [ "$found" != "$1" ] || { [ "$found" = breach ] && ! grep -q "^$2:" "$tree/report"; }; then
    echo "$2 with '$3': expected $1, found $found"
    cat "$tree/report"
    exit 1
  fi
}

expect clean src/train/trainer.cpp '#include "data/idx.hpp"'
expect clean src/comm/ranks.cpp '#include "comm/ranks.hpp"'
expect clean src/compute/cuda/device.cpp '#include <cuda_runtime.h>'
expect clean src/compute/cuda/replica.cpp '#include "compute/replica.hpp"'
expect breach src/data/idx.cpp '#include "comm/ranks.hpp"'
expect breach src/base/error.cpp '#include "app/commands.hpp"'
expect breach src/train/trainer.cpp '#include "app/commands.hpp"'
expect breach src/comm/ranks.cpp '  #  include "compute/replica.hpp"'
expect breach include/convnet/error.hpp '#include "base/clock.hpp"'
expect breach src/compute/cpu/a.cpp '#include "compute/cuda/a.hpp"'
expect breach src/compute/cuda/a.cpp '#include "compute/cpu/a.hpp"'
expect breach src/train/trainer.cpp '#include "compute/cpu/a.hpp"'
expect breach src/compute/cpu/a.cpp '#include <cuda_runtime.h>'
expect breach src/comm/nccl.hpp '#include <nccl.h>'
expect clean src/base/long.cpp "$(seq 450)"
expect breach src/base/long.cpp "$(seq 451)"
