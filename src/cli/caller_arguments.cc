#include "cli/caller_arguments.h"

#include "cli/parent_process.h"

namespace plimsoll {

void CallerArguments::add_to(CLI::App& command) {
  command
      .add_option("--events", events,
                  "write what happens to this open descriptor, as JSON lines (docs/reference/json.md)")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("FD");
  command
      .add_option("--die-with-parent", parent,
                  "end as with SIGTERM once this process, which started the command, is gone")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->type_name("PID");
}

void CallerArguments::begin(const char* command) const {
  if (parent != 0) end_with_parent(parent);
  if (events >= 0) EventStream::open(events, command, PLIMSOLL_VERSION);
}

CallerArguments::Observer::Observer(RunObserver& shown) : shown_(shown) {
  if (EventStream* const stream = EventStream::of_process()) sends_.emplace(*stream, shown);
}

}  // namespace plimsoll
