#!/usr/bin/env bash
# Installs what is missing, builds build/release with warnings as errors, and runs all tests.
#
#   tests/run.sh [options of ctest]      for example: tests/run.sh -L unit, tests/run.sh -R Sampler
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release

"$root/jobs/install_dependencies.sh" --tests

echo "Building the program and its tests in $build"
options=(-DCONVNET_TESTS=ON -DCONVNET_WERROR=ON)
if [ ! -e "$build/CMakeCache.txt" ] && command -v ninja >/dev/null; then
  options+=(-G Ninja) # an old build folder keeps its generator
fi
cmake -S "$root" --preset release "${options[@]}"
cmake --build "$build" --parallel "$(nproc)"

exec ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$(nproc)" "$@"
