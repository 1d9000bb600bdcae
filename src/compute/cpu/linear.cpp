#include "compute/cpu/linear.hpp"

#include <dnnl.hpp>

#include <algorithm>

namespace convnet::cpu {
namespace {

// c = a b for row-major matrices, m x n from m x k and k x n; a transposed operand lies in memory as its
// transpose. Adds to c where `accumulate` is set.
struct Operand {
  const float* values;
  bool is_transposed;
};
void multiply(Operand a, Operand b, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, bool accumulate, float* c) {
  const auto status =
      dnnl_sgemm(a.is_transposed ? 'T' : 'N', b.is_transposed ? 'T' : 'N', m, n, k, 1.0F, a.values,
                 a.is_transposed ? m : k, b.values, b.is_transposed ? k : n, accumulate ? 1.0F : 0.0F, c, n);
  dnnl::error::wrap_c_api(status, "dnnl_sgemm failed");
}

// Each row of C x P values becomes P x C.
void channels_last(const float* from, int rows, std::int64_t channels, std::int64_t pixels, float* to) {
  for (int row = 0; row < rows; ++row, from += channels * pixels, to += channels * pixels) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t p = 0; p < pixels; ++p) {
        to[p * channels + c] = from[c * pixels + p];
      }
    }
  }
}

}  // namespace

Linear::Linear(const ImageShape& input, int classes)
    : input_(input),
      classes_(classes),
      weights_(static_cast<std::size_t>(classes * input.size())),
      dweights_(static_cast<std::size_t>(classes * input.size())) {}

void Linear::forward(int batch, const float* x, std::span<const float> weights, std::span<const float> bias,
                     float* y) {
  channels_last(weights.data(), classes_, input_.channels, input_.pixels(), weights_.data());
  for (int n = 0; n < batch; ++n) {
    std::ranges::copy(bias, y + static_cast<std::ptrdiff_t>(n) * classes_);
  }
  multiply({x, false}, {weights_.data(), true}, batch, classes_, input_.size(), true, y);
}

void Linear::backward(int batch, const float* x, const float* dy, std::span<float> dweights,
                      std::span<float> dbias, float* dx) {
  multiply({dy, true}, {x, false}, classes_, input_.size(), batch, false, dweights_.data());
  channels_last(dweights_.data(), classes_, input_.pixels(), input_.channels, dweights.data());
  multiply({dy, false}, {weights_.data(), false}, batch, input_.size(), classes_, false, dx);
  for (int k = 0; k < classes_; ++k) {
    double sum = 0.0;
    for (int n = 0; n < batch; ++n) {
      sum += static_cast<double>(dy[static_cast<std::ptrdiff_t>(n) * classes_ + k]);
    }
    dbias[static_cast<std::size_t>(k)] = static_cast<float>(sum);
  }
}

}  // namespace convnet::cpu
