#!/usr/bin/env bash
# Proves that kernel_resources.sh refuses what it is there to refuse: each case plants one mistake in a few lines of
# CUDA, and the check must fail and name it.
#
#   break_kernel_resources.sh [NVCC]
set -euo pipefail
check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/kernel_resources.sh
nvcc=${1:-nvcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failures=0

cat >good.cu <<'CUDA'
namespace {
__global__ void twice(float* values) {
  __shared__ float sums[64];
  sums[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = 2.0F * sums[63 - threadIdx.x];
}
}  // namespace
void start_twice(float* values) { twice<<<1, 64>>>(values); }
CUDA

cat >local.cu <<'CUDA'
__global__ void keeps_an_array(const int* where, float* values) {
  float array[64];
  for (int i = 0; i < 64; ++i) array[where[i]] = values[i];
  values[0] = array[where[64]];
}
CUDA

cat >spill.cu <<'CUDA'
__global__ void __launch_bounds__(1024, 2) spills(float* values) {
  float kept[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) kept[i] = values[1024 * i + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) values[1024 * i + threadIdx.x] = kept[i] * kept[95 - i];
}
CUDA

cat >missing.cu <<'CUDA'
__global__ void everywhere(float* values) { values[threadIdx.x] += 1.0F; }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__global__ void only_on_new_ones(float* values) { values[threadIdx.x] += 1.0F; }
#endif
CUDA

echo '__device__ float no_kernel(float value) { return value; }' >none.cu
echo '__global__ void wrong(float* values) { values = 1; }' >wrong.cu

# expect STATUS TEXT OPTIONS...: the check must end so, and say TEXT.
expect() {
  local status=$1 text=$2 got=0
  shift 2
  "$check" --nvcc "$nvcc" "$@" >said 2>&1 || got=$?
  if [ "$got" -ne "$status" ] || ! grep -qF -- "$text" said; then
    echo "break_kernel_resources.sh: $*: expected exit code $status and \"$text\", got $got:" >&2
    cat said >&2
    failures=$((failures + 1))
  fi
}

expect 0 "1 kernels, each for sm_80 sm_90 and in PTX for sm_90" --architectures "80-real;90" good.cu
expect 1 "keeps_an_array(int const*, float*) for sm_90 keeps" --architectures 90-real local.cu
expect 1 "spills(float*) for sm_90 keeps" --architectures 90-real spill.cu
expect 1 "no code for sm_80 of only_on_new_ones(float*)" --architectures "80-real;90-real" missing.cu
expect 1 "PTX: no code for sm_80 of only_on_new_ones(float*)" --architectures "80;90-real" missing.cu
expect 1 "none.cu: the compiler saw no kernel in it" --architectures 90-real none.cu
expect 1 "wrong.cu: nvcc failed" --architectures 90-real wrong.cu

"$nvcc" -std=c++20 -shared -cudart shared -Xcompiler -fPIC -gencode arch=compute_80,code=sm_80 \
  -gencode arch=compute_90,'code=[sm_90,compute_90]' -o libgood.so good.cu
expect 0 "All of them are in libgood.so" --architectures "80-real;90" --library libgood.so good.cu
expect 1 "libgood.so: no code for sm_86 of" --architectures "80-real;86-real;90" --library libgood.so good.cu
expect 1 "libgood.so: no PTX for 80" --architectures "80;90-real" --library libgood.so good.cu
expect 1 "libgood.so: there is no everywhere(float*) in it" --architectures 90-real --library libgood.so good.cu \
  missing.cu
echo "int nothing;" >empty.cpp
"$nvcc" -shared -cudart none -Xcompiler -fPIC -o libempty.so empty.cpp
expect 1 "libempty.so holds no device code" --architectures 90-real --library libempty.so good.cu

if [ "$failures" -gt 0 ]; then exit 1; fi
echo "kernel_resources.sh refuses each planted mistake."
