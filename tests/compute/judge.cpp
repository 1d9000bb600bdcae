#include "compute/judge.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

namespace convnet::judge {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kMomentum = 0.1;

// A convolution is a set of products: calls body(place in y, place in the weights, place in x) for each.
template <class Body>
void for_each_product(const Images& x, const Images& y, const ConvBlock& block, const Body& body) {
  for (int n = 0; n < y.count; ++n) {
    for (int out = 0; out < y.shape.channels; ++out) {
      for (int row = 0; row < y.shape.height; ++row) {
        for (int column = 0; column < y.shape.width; ++column) {
          std::size_t weight = static_cast<std::size_t>(out * x.shape.channels * block.kernel * block.kernel);
          for (int in = 0; in < x.shape.channels; ++in) {
            for (int i = row - block.padding; i < row - block.padding + block.kernel; ++i) {
              for (int j = column - block.padding; j < column - block.padding + block.kernel; ++j, ++weight) {
                if (i >= 0 && i < x.shape.height && j >= 0 && j < x.shape.width) {
                  body(y.index(n, out, row, column), weight, x.index(n, in, i, j));
                }
              }
            }
          }
        }
      }
    }
  }
}

// Calls body(channel, place) for each value of a batch.
template <class Body>
void for_each_value(const Images& x, const Body& body) {
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const auto pixel = static_cast<std::int64_t>(i) / x.shape.pixels();
    body(static_cast<std::size_t>(pixel % x.shape.channels), i);
  }
}

NormReluPool normalise_relu_pool(const Images& x, const Norm& norm, Doubles mean, Doubles deviation) {
  const ImageShape pooled{x.shape.channels, x.shape.height / 2, x.shape.width / 2};
  NormReluPool result{.y = Images(x.count, pooled),
                      .winners = {},
                      .mean = std::move(mean),
                      .deviation = std::move(deviation)};
  for_each_value(result.y, [&](std::size_t c, std::size_t out) {
    const auto line = static_cast<std::int64_t>(out) / pooled.width;
    const auto column = static_cast<int>(static_cast<std::int64_t>(out) % pooled.width) * 2;
    const auto row = static_cast<int>(line % pooled.height) * 2;
    const auto image = static_cast<int>(line / pooled.height / pooled.channels);
    const auto normalised = [&](std::size_t i) {
      return norm.gamma[c] * (x.values[i] - result.mean[c]) / result.deviation[c] + norm.beta[c];
    };
    std::size_t window[4];
    for (int k = 0; k < 4; ++k) {
      window[k] = x.index(image, static_cast<int>(c), row + k / 2, column + k % 2);
    }
    const std::size_t winner =
        *std::max_element(window, window + 4, [&](auto a, auto b) { return normalised(a) < normalised(b); });
    const double best = normalised(winner);
    result.winners.push_back(winner);
    result.y.values[out] = std::max(0.0, best);
    result.margin = std::min(result.margin, std::abs(best));
    for (const std::size_t i : window) {
      if (best > 0.0 && normalised(i) < best) {
        result.margin = std::min(result.margin, best - normalised(i));
      }
    }
  });
  return result;
}

Doubles deviations(const Doubles& variance) {
  Doubles result;
  for (const double value : variance) {
    result.push_back(std::sqrt(value + kEpsilon));
  }
  return result;
}

}  // namespace

Images convolution_forward(const Images& x, const ConvBlock& block, const Doubles& weights,
                           const Doubles& bias) {
  Images y(x.count, block.convolved(x.shape));
  for_each_value(y, [&](std::size_t channel, std::size_t out) { y.values[out] = bias[channel]; });
  for_each_product(x, y, block, [&](std::size_t out, std::size_t weight, std::size_t in) {
    y.values[out] += weights[weight] * x.values[in];
  });
  return y;
}

Doubles convolution_backward_weights(const Images& x, const Images& dy, const ConvBlock& block) {
  Doubles dweights(
      static_cast<std::size_t>(block.out_channels * x.shape.channels * block.kernel * block.kernel));
  for_each_product(x, dy, block, [&](std::size_t out, std::size_t weight, std::size_t in) {
    dweights[weight] += dy.values[out] * x.values[in];
  });
  return dweights;
}

Images convolution_backward_data(const Images& dy, const ImageShape& input, const ConvBlock& block,
                                 const Doubles& weights) {
  Images dx(dy.count, input);
  for_each_product(dx, dy, block, [&](std::size_t out, std::size_t weight, std::size_t in) {
    dx.values[in] += weights[weight] * dy.values[out];
  });
  return dx;
}

NormReluPool norm_relu_pool_forward(const Images& x, Norm& norm) {
  const auto channels = static_cast<std::size_t>(x.shape.channels);
  const auto count = static_cast<double>(x.count * x.shape.pixels());
  Doubles mean(channels);
  Doubles variance(channels);
  for_each_value(x, [&](std::size_t c, std::size_t i) { mean[c] += x.values[i] / count; });
  for_each_value(x, [&](std::size_t c, std::size_t i) {
    variance[c] += (x.values[i] - mean[c]) * (x.values[i] - mean[c]) / count;
  });
  const double unbias = count > 1.0 ? count / (count - 1.0) : 1.0;
  for (std::size_t c = 0; c < channels; ++c) {
    norm.running_mean[c] = (1.0 - kMomentum) * norm.running_mean[c] + kMomentum * mean[c];
    norm.running_var[c] = (1.0 - kMomentum) * norm.running_var[c] + kMomentum * unbias * variance[c];
  }
  return normalise_relu_pool(x, norm, mean, deviations(variance));
}

NormReluPool norm_relu_pool_infer(const Images& x, const Norm& norm) {
  return normalise_relu_pool(x, norm, norm.running_mean, deviations(norm.running_var));
}

NormReluPoolGradients norm_relu_pool_backward(const Images& x, const Norm& norm, const NormReluPool& forward,
                                              const Doubles& dy) {
  Images g(x.count, x.shape);  // the gradient behind the batch norm
  for (std::size_t out = 0; out < dy.size(); ++out) {
    g.values[forward.winners[out]] = forward.y.values[out] > 0.0 ? dy[out] : 0.0;
  }
  const auto normalised = [&](std::size_t c, std::size_t i) {
    return (x.values[i] - forward.mean[c]) / forward.deviation[c];
  };
  NormReluPoolGradients result{Images(x.count, x.shape), Doubles(norm.gamma.size()),
                               Doubles(norm.gamma.size())};
  for_each_value(g, [&](std::size_t c, std::size_t i) {
    result.dbeta[c] += g.values[i];
    result.dgamma[c] += g.values[i] * normalised(c, i);
  });
  const auto count = static_cast<double>(x.count * x.shape.pixels());
  for_each_value(x, [&](std::size_t c, std::size_t i) {
    const double through_statistics = result.dbeta[c] / count + normalised(c, i) * result.dgamma[c] / count;
    result.dx.values[i] = norm.gamma[c] / forward.deviation[c] * (g.values[i] - through_statistics);
  });
  return result;
}

Doubles linear_forward(const Doubles& x, const Doubles& weights, const Doubles& bias) {
  const std::size_t outputs = bias.size();
  const std::size_t inputs = weights.size() / outputs;
  Doubles y;
  for (std::size_t n = 0; n < x.size() / inputs; ++n) {
    for (std::size_t out = 0; out < outputs; ++out) {
      y.push_back(bias[out]);
      for (std::size_t in = 0; in < inputs; ++in) {
        y.back() += weights[out * inputs + in] * x[n * inputs + in];
      }
    }
  }
  return y;
}

LinearGradients linear_backward(const Doubles& x, const Doubles& weights, const Doubles& dy, int outputs) {
  const auto rows = static_cast<std::size_t>(outputs);
  const std::size_t inputs = weights.size() / rows;
  LinearGradients result{Doubles(weights.size()), Doubles(rows), Doubles(x.size())};
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const std::size_t n = i / rows;
    const std::size_t out = i % rows;
    result.dbias[out] += dy[i];
    for (std::size_t in = 0; in < inputs; ++in) {
      result.dweights[out * inputs + in] += dy[i] * x[n * inputs + in];
      result.dx[n * inputs + in] += dy[i] * weights[out * inputs + in];
    }
  }
  return result;
}

Loss softmax_cross_entropy(const Doubles& logits, std::span<const std::int32_t> labels, double scale) {
  Loss result;
  for (std::size_t n = 0; n < labels.size(); ++n) {
    const std::size_t classes = logits.size() / labels.size();
    const std::span row(logits.data() + n * classes, classes);
    const auto label = static_cast<std::size_t>(labels[n]);
    const auto greatest = std::ranges::max_element(row);
    double total = 0.0;
    for (const double logit : row) {
      total += std::exp(logit - *greatest);
    }
    result.sum += std::log(total) + *greatest - row[label];
    result.correct += static_cast<std::size_t>(greatest - row.begin()) == label ? 1 : 0;
    for (std::size_t k = 0; k < classes; ++k) {
      const double softmax = std::exp(row[k] - *greatest) / total;
      result.dlogits.push_back(scale * (softmax - (k == label ? 1.0 : 0.0)));
    }
  }
  return result;
}

void apply_update(const UpdateRule& rule, const Doubles& unclipped, Doubles& parameters,
                  std::vector<Doubles>& moments) {
  moments.resize(static_cast<std::size_t>(rule.moments()), Doubles(parameters.size()));
  const auto steps = static_cast<double>(rule.step);
  const double norm =
      std::sqrt(std::inner_product(unclipped.begin(), unclipped.end(), unclipped.begin(), 0.0));
  Doubles gradients = unclipped;
  if (rule.clip_norm > 0.0 && norm + 1e-6 > rule.clip_norm) {
    std::ranges::for_each(gradients, [&](double& g) { g *= rule.clip_norm / (norm + 1e-6); });
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    double& p = parameters[i];
    if (rule.optimizer == Optimizer::kAdamW) {
      double& m = moments[0][i];
      double& v = moments[1][i];
      m = rule.beta1 * m + (1.0 - rule.beta1) * gradients[i];
      v = rule.beta2 * v + (1.0 - rule.beta2) * gradients[i] * gradients[i];
      const double mean = m / (1.0 - std::pow(rule.beta1, steps));
      const double square = v / (1.0 - std::pow(rule.beta2, steps));
      p -= rule.learning_rate * (rule.weight_decay * p + mean / (std::sqrt(square) + rule.epsilon));
      continue;
    }
    double change = gradients[i] + rule.weight_decay * p;
    if (rule.momentum != 0.0) {
      double& v = moments[0][i];
      v = rule.momentum * v + change;
      change = rule.nesterov ? change + rule.momentum * v : v;
    }
    p -= rule.learning_rate * change;
  }
}

}  // namespace convnet::judge
