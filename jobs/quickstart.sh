#!/usr/bin/env bash
# From a fresh checkout to a trained network: installs what is missing, builds the program, converts data/ to an HDF5
# file and trains on MNIST under mpirun, with one rank for each GPU, or two on the CPU. What is done already is not done
# again.
#
#   jobs/quickstart.sh [--no-install] [options of "convnet train"]
#
#   --no-install  install nothing: name what is missing and stop
#
# For example: jobs/quickstart.sh --recipe onecycle
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
convnet=$build/convnet
output=$root/output
data=$output/mnist.h5

# GPUs that the program can use: none where it was built without CUDA, or where the CPU is asked for.
gpu_count() {
  if [ ! -e "$build/libconvnet_cuda.so" ] || [[ " ${train_options[*]} " =~ \ --device(=|\ )cpu\  ]] ||
    ! command -v nvidia-smi >/dev/null; then
    echo 0
  elif [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c '^[0-9GM]' || true
  else
    nvidia-smi --list-gpus | grep -c '^GPU ' || true
  fi
}

# One rank for each GPU. Without one, a rank for each of two halves of the cores, if there are two cores.
rank_count() {
  local gpus
  gpus=$(gpu_count)
  if [ "$gpus" -gt 0 ]; then
    echo "$gpus"
  elif [ "$(nproc)" -ge 2 ]; then
    echo 2
  else
    echo 1
  fi
}

# A new build folder gets Ninja, where it is there, and no tests; an old one stays what it is.
build_program() {
  local options=()
  if [ ! -e "$build/CMakeCache.txt" ]; then
    options+=(-DCONVNET_TESTS=OFF)
    if command -v ninja >/dev/null; then options+=(-G Ninja); fi
  fi
  cmake -S "$root" --preset release "${options[@]}"
  cmake --build "$build" --target convnet --parallel "$(nproc)"
}

# What the run came to, in words, from the lines that the program printed.
describe_result() {
  awk -v ranks="$ranks" '
    /Test accuracy/ {
      epoch = $2; gsub(/[][,]/, "", epoch); split(epoch, of, "/")
      match($0, /\([0-9]+\/[0-9]+\)/); counts = substr($0, RSTART + 1, RLENGTH - 2); sub("/", " of ", counts)
      printf "After epoch %s of %s the network reads %s test images rightly: %s %%, at %s images a second.\n",
             of[1], of[2], counts, $5, $(NF - 1)
    }
    /^Training complete/ { printf "Training on %s rank(s) took %s (hours:minutes:seconds), evaluation included.\n", ranks, $NF }
    /^Weights/ { printf "The weights have the SHA-256 %s: the same again for the same run.\n", $NF }' "$output/train.txt"
}

install_options=()
train_options=()
for argument in "$@"; do
  case $argument in
    -h | --help)
      sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --no-install) install_options=(--no-install) ;;
    *) train_options+=("$argument") ;;
  esac
done

echo "== 1/4 Packages"
"$root/jobs/install_dependencies.sh" "${install_options[@]}"

echo "== 2/4 The program, in $build"
build_program

echo "== 3/4 The data, in $data"
mkdir -p "$output"
if "$convnet" info "$data" >/dev/null 2>&1; then
  echo "Converted already."
else
  "$convnet" convert "$root/data" "$data"
fi

ranks=$(rank_count)
echo "== 4/4 Training with mpirun -n $ranks"
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # Open MPI asks root to say it twice
fi
mpirun --bind-to none -n "$ranks" "$convnet" train --data "$data" --log "$output/train.jsonl" "${train_options[@]}" |
  tee "$output/train.txt"

echo "== Result (the whole run is in $output/train.txt)"
describe_result
