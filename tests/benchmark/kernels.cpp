// Times the vector kernels of the CPU back end on one thread, as a step of 100 MNIST images calls them, and
// prints how near each comes to copying as many bytes and to the peak of multiplying and adding: a table in
// Markdown.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>
#include <numeric>
#include <vector>

#include "base/clock.hpp"
#include "benchmark/fma_peak.hpp"
#include "compute/cpu/all_finite.hpp"
#include "compute/cpu/apply_update.hpp"
#include "compute/cpu/buffer.hpp"
#include "compute/cpu/first_convolution_kernels.hpp"
#include "compute/cpu/gather.hpp"
#include "compute/cpu/norm_relu_pool_kernels.hpp"
#include "compute/cpu/softmax_cross_entropy.hpp"
#include "convnet/model_state.hpp"

namespace convnet::cpu {
namespace {

constexpr std::int64_t kBatch = 100;

double fastest_of_many(const std::function<void()>& action) {
  double best = 1.0;
  for (int i = 0; i < 50; ++i) {
    const Stopwatch stopwatch;
    action();
    best = std::min(best, stopwatch.seconds());
  }
  return best;
}

// Bytes a second, those read and those written, of copying so many in all.
double copy_rate(double bytes) {
  Buffer<char> from(static_cast<std::size_t>(bytes / 2));
  Buffer<char> to(from.size());
  return bytes / fastest_of_many([&] { std::memcpy(to.data(), from.data(), from.size()); });
}

struct Work {
  double bytes;
  double operations;
};

void time_kernel(const std::string& name, const Work& work, const std::function<void()>& action) {
  static const double peak = 1e9 * measure_fma_gflops(1);
  const double seconds = fastest_of_many(action);
  std::cout << fmt::format("| {} | {:.3f} | {:.3f} | {:.1f} | {:.0f} | {:.0f} |\n", name, work.bytes / 1e6,
                           work.operations / 1e6, 1e6 * seconds,
                           100.0 * work.bytes / seconds / copy_rate(work.bytes),
                           100.0 * work.operations / seconds / peak);
}

void for_batch(const std::function<void(std::int64_t)>& action) {
  for (std::int64_t n = 0; n < kBatch; ++n) {
    action(n);
  }
}

// What batch norm, ReLU and pooling do with the activations of one block.
void time_block(const std::string& block, const ImageShape& shape) {
  const ImageShape half{shape.channels, shape.height / 2, shape.width / 2};
  const double values = static_cast<double>(kBatch * shape.size());
  const double windows = values / 4;
  Buffer<float> x(static_cast<std::size_t>(values));
  Buffer<float> dx(x.size());
  Buffer<float> y(x.size() / 4);
  Buffer<float> winners(y.size());
  Buffer<std::uint8_t> places(y.size());
  const std::vector<float> terms(static_cast<std::size_t>(shape.channels), 0.5F);
  std::vector<double> sums(2 * terms.size());
  double* const second = sums.data() + terms.size();
  time_kernel(block + "add_channel_sums", {4 * values, 4 * values}, [&] {
    for_batch([&](auto n) { add_channel_sums(x.data() + n * shape.size(), shape, sums.data(), second); });
  });
  time_kernel(block + "normalise_relu_pool", {4 * values + 9 * windows, 3 * values}, [&] {
    for_batch([&](auto n) {
      normalise_relu_pool(x.data() + n * shape.size(), shape, terms.data(), terms.data(),
                          y.data() + n * half.size(), winners.data() + n * half.size(),
                          places.data() + n * half.size());
    });
  });
  time_kernel(block + "add_gradient_sums", {9 * windows, 4 * windows}, [&] {
    for_batch([&](auto n) {
      add_gradient_sums(y.data() + n * half.size(), winners.data() + n * half.size(),
                        places.data() + n * half.size(), half, terms.data(), sums.data(), second);
    });
  });
  time_kernel(block + "input_gradient", {8 * values + 5 * windows, 4 * values}, [&] {
    for_batch([&](auto n) {
      input_gradient(x.data() + n * shape.size(), shape, y.data() + n * half.size(),
                     places.data() + n * half.size(),
                     {terms.data(), terms.data(), terms.data(), terms.data()}, dx.data() + n * shape.size());
    });
  });
}

void time_first_convolution(const ImageShape& out) {
  const std::int64_t padded = std::int64_t{out.height + 4} * (out.width + 4);
  Buffer<float> images(static_cast<std::size_t>(kBatch * padded));
  Buffer<float> y(static_cast<std::size_t>(kBatch * out.size()));
  std::vector<float> taps(25 * static_cast<std::size_t>(out.channels), 0.1F);
  const double values = static_cast<double>(kBatch * out.size());
  time_kernel("convolve_image", {4 * values, 50 * values}, [&] {
    for_batch([&](auto n) {
      convolve_image(images.data() + n * padded, out, taps.data(), taps.data(), y.data() + n * out.size());
    });
  });
  time_kernel("differentiate_taps", {4 * values, 50 * values}, [&] {
    for_batch([&](auto n) {
      differentiate_taps(images.data() + n * padded, out, y.data() + n * out.size(), taps.data());
    });
  });
}

void time_gather(const ImageShape& shape) {
  const std::vector<std::uint8_t> images(static_cast<std::size_t>(60'000 * shape.size()));
  std::vector<std::int32_t> rows(kBatch);
  std::iota(rows.begin(), rows.end(), 0);
  Buffer<float> x(static_cast<std::size_t>(kBatch * shape.size()));
  const double pixels = static_cast<double>(kBatch * shape.size());
  time_kernel("gather_images", {5 * pixels, pixels}, [&] { gather_images(images, shape, rows, x.data()); });
}

void time_flat(std::int64_t parameters, std::int64_t classes) {
  const auto count = static_cast<double>(parameters);
  const std::vector<float> gradients(static_cast<std::size_t>(parameters));
  std::vector<float> values = gradients;
  std::vector<std::vector<float>> moments(2, gradients);
  const auto update = [&](const UpdateRule& rule) {
    apply_update(rule, gradients, values, std::span(moments).first(static_cast<std::size_t>(rule.moments())));
  };
  bool is_finite = true;
  time_kernel("all_finite", {4 * count, 2 * count}, [&] { is_finite &= all_finite(gradients); });
  time_kernel("SGD", {12 * count, 5 * count}, [&] { update({}); });
  time_kernel("SGD, momentum", {20 * count, 9 * count}, [&] { update({.momentum = 0.9}); });
  time_kernel("AdamW", {28 * count, 15 * count}, [&] { update({.optimizer = Optimizer::kAdamW}); });
  time_kernel("SGD, clipped", {16 * count, 7 * count}, [&] { update({.clip_norm = 0.5}); });
  std::vector<float> logits(static_cast<std::size_t>(kBatch * classes));
  const std::vector<std::int32_t> labels(kBatch);
  SoftmaxCrossEntropy softmax(logits.size());
  const auto size = static_cast<double>(logits.size());
  time_kernel("softmax_cross_entropy", {24 * size, 35 * size},
              [&] { softmax(logits, labels, 1.0F, logits.data()); });
}

void time_all() {
  omp_set_num_threads(1);
  std::cout << "| kernel | MB | MFLOP | µs | % of copying | % of multiply-adds |\n"
               "| --- | ---: | ---: | ---: | ---: | ---: |\n";
  const Network network = tutorial_network({1, 28, 28}, 10);
  time_gather(network.input);
  time_first_convolution(network.blocks[0].convolved(network.input));
  for (std::size_t i = 0; i < network.blocks.size(); ++i) {
    time_block(fmt::format("block {}: ", i + 1), network.blocks[i].convolved(network.block_input(i)));
  }
  time_flat(StateLayout(network).parameter_count(), network.classes);
}

}  // namespace
}  // namespace convnet::cpu

int main() {
  convnet::cpu::time_all();
}
