#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "train/train_options.hpp"

namespace convnet {

// Adds all options of `convnet train`, whose values go to `options`, which outlives the parser.
void add_train_flags(CLI::App& parser, TrainOptions& options);

}  // namespace convnet
