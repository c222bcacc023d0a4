#include "cli/commands.h"

namespace plimsoll {

void add_debug_dump(CLI::App&, Action&) {}

}  // namespace plimsoll
