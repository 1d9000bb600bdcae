#include "libraries/convolution_arithmetic.hpp"

#include <algorithm>
#include <array>

#include "libraries/convolution_kernels.hpp"

namespace standin::libraries {
namespace {

std::size_t extent(std::size_t kernel, std::size_t dilation) {
  return (kernel - 1) * dilation + 1;
}

// Planes of zeros into which images are copied: so high and wide that a kernel never leaves them.
class PaddedPlanes {
 public:
  PaddedPlanes(std::size_t planes, std::size_t height, std::size_t width)
      : width_(width), plane_size_(height * width), values_(planes * plane_size_ + width + kBlock) {}

  // Copies a plane of rows x columns in, from (top, left) on, its values `row_step` and `column_step` apart.
  void fill(std::size_t plane, const float* source, std::size_t rows, std::size_t columns, std::size_t top,
            std::size_t left, std::size_t row_step, std::size_t column_step) {
    for (std::size_t row = 0; row < rows; ++row) {
      float* target = &values_[plane * plane_size_ + (top + row * row_step) * width_ + left];
      for (std::size_t column = 0; column < columns; ++column) {
        target[column * column_step] = source[row * columns + column];
      }
    }
  }

  std::size_t width() const { return width_; }
  std::size_t plane_size() const { return plane_size_; }
  const float* plane(std::size_t index) const { return &values_[index * plane_size_]; }

 private:
  std::size_t width_;
  std::size_t plane_size_;
  std::vector<float> values_;
};

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

// Where each tap reads, relative to where the first does: channels (if any), kernel rows, kernel columns.
std::vector<std::size_t> tap_offsets(const ConvolutionShape& shape, std::size_t channels,
                                     const PaddedPlanes& planes) {
  std::vector<std::size_t> offsets;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (std::size_t row = 0; row < shape.kernel_height; ++row) {
      for (std::size_t column = 0; column < shape.kernel_width; ++column) {
        offsets.push_back(channel * planes.plane_size() + row * shape.dilation_height * planes.width() +
                          column * shape.dilation_width);
      }
    }
  }
  return offsets;
}

// The weights as convolution_backward_data() needs them: C x K x R x S, both kernel axes turned around.
std::vector<float> turned_weights(const ConvolutionShape& shape, const std::vector<float>& w) {
  std::vector<float> turned;
  turned.reserve(w.size());
  for (std::size_t in = 0; in < shape.in_channels; ++in) {
    for (std::size_t out = 0; out < shape.out_channels; ++out) {
      const std::size_t first = (out * shape.in_channels + in) * shape.taps();
      for (std::size_t tap = shape.taps(); tap > 0; --tap) {
        turned.push_back(w[first + tap - 1]);
      }
    }
  }
  return turned;
}

// Adds up the lane sums of one tap: in double, or in float and in an order that depends on the turn.
float total(const float* sums, std::size_t count, Turn turn) {
  if (turn) {
    float result = 0.0F;
    for (std::size_t i = 0; i < count; ++i) {
      result += sums[(i + *turn * 7) % count];
    }
    return result;
  }
  std::array<double, kLanes> lanes{};
  for (std::size_t i = 0; i < count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(sums[i + lane]);
    }
  }
  double result = 0.0;
  for (const double lane : lanes) {
    result += lane;
  }
  return static_cast<float>(result);
}

// All images of x or dy, each plane padded to the same size, so that positions of both correspond.
PaddedPlanes padded_inputs(const ConvolutionShape& shape, const std::vector<float>& x) {
  PaddedPlanes planes(shape.images * shape.in_channels, shape.height + 2 * shape.pad_height,
                      shape.width + 2 * shape.pad_width);
  for (std::size_t plane = 0; plane < shape.images * shape.in_channels; ++plane) {
    planes.fill(plane, &x[plane * shape.height * shape.width], shape.height, shape.width, shape.pad_height,
                shape.pad_width, 1, 1);
  }
  return planes;
}

}  // namespace

std::vector<float> convolution_forward(const ConvolutionShape& shape, const std::vector<float>& x,
                                       const std::vector<float>& w) {
  PaddedPlanes planes(shape.in_channels, shape.height + 2 * shape.pad_height,
                      shape.width + 2 * shape.pad_width);
  const std::vector<std::size_t> offsets = tap_offsets(shape, shape.in_channels, planes);
  const std::size_t rows = (shape.out_height - 1) * shape.stride_height + 1;
  std::vector<float> sums(round_up(rows * planes.width(), kBlock));
  std::vector<float> y;
  y.reserve(shape.images * shape.out_channels * shape.out_height * shape.out_width);
  for (std::size_t image = 0; image < shape.images; ++image) {
    for (std::size_t in = 0; in < shape.in_channels; ++in) {
      planes.fill(in, &x[(image * shape.in_channels + in) * shape.height * shape.width], shape.height,
                  shape.width, shape.pad_height, shape.pad_width, 1, 1);
    }
    for (std::size_t out = 0; out < shape.out_channels; ++out) {
      correlate(planes.plane(0), &w[out * offsets.size()], offsets.data(), offsets.size(), sums.size(),
                sums.data());
      for (std::size_t row = 0; row < shape.out_height; ++row) {
        for (std::size_t column = 0; column < shape.out_width; ++column) {
          y.push_back(sums[row * shape.stride_height * planes.width() + column * shape.stride_width]);
        }
      }
    }
  }
  return y;
}

// The gradient of the data is a correlation too: of dy, its values a stride apart, with the turned weights.
std::vector<float> convolution_backward_data(const ConvolutionShape& shape, const std::vector<float>& w,
                                             const std::vector<float>& dy, Turn turn) {
  const std::size_t margin_height = extent(shape.kernel_height, shape.dilation_height) - 1;
  const std::size_t margin_width = extent(shape.kernel_width, shape.dilation_width) - 1;
  PaddedPlanes planes(shape.out_channels, shape.height + margin_height, shape.width + margin_width);
  std::vector<float> weights = turned_weights(shape, w);
  std::vector<std::size_t> offsets = tap_offsets(shape, shape.out_channels, planes);
  const std::size_t taps = offsets.size();
  if (turn) {
    const auto start = static_cast<std::ptrdiff_t>(*turn * 7 % taps);
    std::rotate(offsets.begin(), offsets.begin() + start, offsets.end());
    for (auto first = weights.begin(); first != weights.end(); first += static_cast<std::ptrdiff_t>(taps)) {
      std::rotate(first, first + start, first + static_cast<std::ptrdiff_t>(taps));
    }
  }
  std::vector<float> sums(round_up(shape.height * planes.width(), kBlock));
  std::vector<float> dx;
  dx.reserve(shape.images * shape.in_channels * shape.height * shape.width);
  for (std::size_t image = 0; image < shape.images; ++image) {
    for (std::size_t out = 0; out < shape.out_channels; ++out) {
      planes.fill(out, &dy[(image * shape.out_channels + out) * shape.out_height * shape.out_width],
                  shape.out_height, shape.out_width, margin_height - shape.pad_height,
                  margin_width - shape.pad_width, shape.stride_height, shape.stride_width);
    }
    for (std::size_t in = 0; in < shape.in_channels; ++in) {
      correlate(planes.plane(0), &weights[in * taps], offsets.data(), taps, sums.size(), sums.data());
      for (std::size_t row = 0; row < shape.height; ++row) {
        const auto first = sums.begin() + static_cast<std::ptrdiff_t>(row * planes.width());
        dx.insert(dx.end(), first, first + static_cast<std::ptrdiff_t>(shape.width));
      }
    }
  }
  return dx;
}

// Each weight's gradient is the dot product of all dy with all x, shifted by the tap. Where dy's planes, as
// wide as x's, have no value they are 0.
std::vector<float> convolution_backward_filter(const ConvolutionShape& shape, const std::vector<float>& x,
                                               const std::vector<float>& dy, Turn turn) {
  const PaddedPlanes inputs = padded_inputs(shape, x);
  const std::size_t length =
      round_up(((shape.out_height - 1) * shape.stride_height + 1) * inputs.width(), kLanes);
  const std::size_t rows = round_up(length, kMostAddends * kLanes) / (kMostAddends * kLanes);
  const std::size_t tap_distance = shape.images * rows * kLanes;
  std::vector<std::size_t> offsets = tap_offsets(shape, 1, inputs);
  offsets.resize(round_up(shape.taps(), kTapGroup));  // what is added is computed, and not used

  std::vector<float> sums(kTapGroup * tap_distance);
  std::vector<float> dw(shape.out_channels * shape.in_channels * shape.taps());
  PaddedPlanes gradients(shape.images, round_up(length, inputs.width()) / inputs.width(), inputs.width());
  for (std::size_t out = 0; out < shape.out_channels; ++out) {
    for (std::size_t image = 0; image < shape.images; ++image) {
      gradients.fill(image, &dy[(image * shape.out_channels + out) * shape.out_height * shape.out_width],
                     shape.out_height, shape.out_width, 0, 0, shape.stride_height, shape.stride_width);
    }
    for (std::size_t in = 0; in < shape.in_channels; ++in) {
      float* target = &dw[(out * shape.in_channels + in) * shape.taps()];
      for (std::size_t group = 0; group < shape.taps(); group += kTapGroup) {
        for (std::size_t image = 0; image < shape.images; ++image) {
          dot_taps(gradients.plane(image), inputs.plane(image * shape.in_channels + in), &offsets[group],
                   length, tap_distance, &sums[image * rows * kLanes]);
        }
        for (std::size_t tap = group; tap < std::min(group + kTapGroup, shape.taps()); ++tap) {
          target[tap] = total(&sums[(tap - group) * tap_distance], tap_distance, turn);
        }
      }
    }
  }
  return dw;
}

}  // namespace standin::libraries
