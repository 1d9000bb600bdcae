#include "app/commands.hpp"

namespace convnet {

Command add_train_command(CLI::App& program) {
  return {program.add_subcommand("train"), [] {}};
}

}  // namespace convnet
