#pragma once

#include <cstddef>
#include <optional>
#include <vector>

// The arithmetic of convolutions (cross-correlations), on the host and in float.
//
// Every value sums its products in one order, the same at every position of an image: equal inputs give equal
// bits. Taps outside the image are products with 0, which add exactly nothing.
namespace standin::libraries {

struct ConvolutionShape {
  std::size_t images = 0;
  std::size_t in_channels = 0;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t out_channels = 0;
  std::size_t out_height = 0;
  std::size_t out_width = 0;
  std::size_t kernel_height = 0;
  std::size_t kernel_width = 0;
  std::size_t pad_height = 0;  // less than the kernel's extent (its size, spread by the dilation)
  std::size_t pad_width = 0;
  std::size_t stride_height = 1;
  std::size_t stride_width = 1;
  std::size_t dilation_height = 1;
  std::size_t dilation_width = 1;

  std::size_t taps() const { return kernel_height * kernel_width; }
};

// A number that differs from call to call where the result is to be nondeterministic: it then sums in an
// order that depends on it.
using Turn = std::optional<std::size_t>;

// Layouts: x and dx N x C x H x W, w and dw K x C x R x S, y and dy N x K x P x Q.
std::vector<float> convolution_forward(const ConvolutionShape& shape, const std::vector<float>& x,
                                       const std::vector<float>& w);
std::vector<float> convolution_backward_data(const ConvolutionShape& shape, const std::vector<float>& w,
                                             const std::vector<float>& dy, Turn turn);
// Sums float blocks of at most 64 values in double; with a turn, all in float.
std::vector<float> convolution_backward_filter(const ConvolutionShape& shape, const std::vector<float>& x,
                                               const std::vector<float>& dy, Turn turn);

}  // namespace standin::libraries
