#pragma once

// What a .cu file sees when the host's compiler compiles it (included before its first line): the words and
// functions of CUDA C++ that the host lacks. A block's threads take turns on the one host thread.

#include <cuda_runtime.h>
#include <device_launch_parameters.h>

#include "kernel/device_math.hpp"
#include "kernel/device_words.hpp"

#include "kernel/device_atomics.hpp"
#include "kernel/device_warp.hpp"
