#include "cli/commands.h"

namespace plimsoll {

void add_generate(CLI::App&, Action&) {}

}  // namespace plimsoll
