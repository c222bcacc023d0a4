#include "base/print.h"
#include "cli/commands.h"

namespace plimsoll {

void add_toy(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("toy", "says that it is one");
  command->callback([&action] {
    action = [] {
      print("a toy\n");
      return ExitCode::ok;
    };
  });
}

}  // namespace plimsoll
