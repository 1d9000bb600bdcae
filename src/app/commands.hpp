#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>

#include "convnet/error.hpp"

namespace convnet {

// A subcommand of the program: what CLI11 parses, and what runs afterwards, with the values then known.
struct Command {
  CLI::App* parser = nullptr;
  std::function<ExitCode()> run;  // kOk, or kStopped
};

// Each adds one subcommand and its options to the program.
Command add_train_command(CLI::App& program);
Command add_convert_command(CLI::App& program);
Command add_info_command(CLI::App& program);

}  // namespace convnet
