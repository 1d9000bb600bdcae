#pragma once

#include <string>

namespace convnet {

// The instruction set that Highway's kernels use, in its words: for example "AVX3" for AVX-512.
std::string instruction_set();

// Keeps Highway's and oneDNN's kernels to AVX2 from now on; oneDNN's only if none of them has run before.
// Throws Error (kUnavailable) where the processor has no AVX2.
void restrict_to_avx2();

}  // namespace convnet
