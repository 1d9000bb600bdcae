# shellcheck shell=bash disable=SC2154 # device_check.sh, which reads this file, sets its variables
# Stages of device_check.sh: what the machine is, and the build.

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
