#include "app/commands.hpp"

namespace convnet {

Command add_convert_command(CLI::App& program) {
  return {program.add_subcommand("convert"), [] {}};
}

}  // namespace convnet
