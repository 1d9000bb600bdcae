#include "app/commands.hpp"

namespace convnet {

Command add_info_command(CLI::App& program) {
  return {program.add_subcommand("info"), [] {}};
}

}  // namespace convnet
