#include "cli/machine_rates.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/format.h"
#include "base/print.h"
#include "base/units.h"
#include "calibrate/probe.h"
#include "calibrate/rates_cache.h"
#include "cpu/isa.h"
#include "cpu/threads.h"

extern char** environ;

namespace plimsoll {
namespace {

// Runs this program with the words, its output thrown away; how it ended, nothing where it did not exit.
template <size_t N>
std::optional<ExitCode> run_self(std::array<std::string, N> words) {
  std::array<char*, N + 1> argv{};
  for (size_t i = 0; i < N; ++i) argv[i] = words[i].data();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int descriptor : {1, 2})
    posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed != 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return std::nullopt;
  return static_cast<ExitCode>(WEXITSTATUS(status));
}

}  // namespace

void probe_where_unknown(const CpuSettings& cpu, const MemoryLimit& budget, bool quiet) {
  if (std::getenv("PLIMSOLL_NO_PROBE") != nullptr) return;
  if (cpu.isa != detect_isa() || cpu.threads > available_cpus()) return;  // planned for another machine
  try {
    if (knows_rates(cache_folder(), this_machine(cpu))) return;
  } catch (const UsageError&) {
    return;  // no cache folder: the rates' note reports it
  }
  if (budget.kind == MemoryLimit::Kind::bytes && budget.bytes < kProbeBytes) {
    if (!quiet)
      say(
          formatted("note    no rates of this machine are known, and measuring them takes {}, more than the "
                    "budget of {}: plimsoll calibrate does it apart",
                    format_bytes(kProbeBytes), format_bytes(budget.bytes)));
    return;
  }
  const std::optional<ExitCode> ended = run_self(
      std::array<std::string, 7>{"plimsoll", "calibrate", "--probe", "--threads", std::to_string(cpu.threads),
                                 "--max-isa", std::string(to_string(cpu.isa))});
  if (quiet) return;
  if (ended == ExitCode::ok)
    say("note    no rates of this machine were known: measured a product and a copy for half a second");
  if (ended == ExitCode::stopped)
    say("note    no rates of this machine are known, and it is too busy to measure them");
}

}  // namespace plimsoll
