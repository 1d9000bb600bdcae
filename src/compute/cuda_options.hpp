#pragma once

namespace convnet {

enum class Precision {
  kFp32,
  kTf32,
  kBf16
};                                      // fp32 is true fp32; bf16: activations, master weights stay float
enum class Kernels { kFused, kCudnn };  // batch norm, ReLU, pooling, softmax: our own, or cuDNN's
enum class CommLibrary { kAuto, kNccl, kMpi };
enum class CudaGraph { kAuto, kOn, kOff };

constexpr int kMostStepsPerLaunch = 64;  // what one kernel's arguments have room for

// What the CUDA back end alone can choose.
struct CudaOptions {
  Precision precision = Precision::kFp32;
  Kernels kernels = Kernels::kFused;
  bool autotune = false;       // measure cuDNN's convolution algorithms instead of trusting its heuristics
  bool deterministic = false;  // only algorithms that give the same bits again
  CudaGraph graph = CudaGraph::kAuto;
  int steps_per_launch = 1;  // steps of one captured graph, 1 to kMostStepsPerLaunch
  CommLibrary comm = CommLibrary::kAuto;
  int buckets = 1;         // parts in which gradients are all-reduced, >= 1
  int comm_timeout = 300;  // seconds to wait for other ranks, >= 1
  bool share_gpu = false;  // several ranks may use one GPU

  friend bool operator==(const CudaOptions&, const CudaOptions&) = default;
};

}  // namespace convnet
