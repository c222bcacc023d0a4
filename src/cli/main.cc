#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

// The one place that has all of CLI11: how an App prints itself takes seconds to compile.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <new>
#include <sstream>
#include <system_error>

#include "base/format.h"
#include "base/lines.h"
#include "base/print.h"
#include "base/system_error.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/usage_text.h"
#include "recipe/document/problems.h"
#include "report/event_stream.h"

namespace plimsoll {
namespace {

// "error: " before each line of a user's mistake; refusals speak for themselves.
int report(const Error& error) {
  // Earlier output comes before the error, and a failure to write it matters no more.
  flush_output();
  std::string text = error.what();
  const bool of_recipe = dynamic_cast<const RecipeError*>(&error) != nullptr;
  if (!of_recipe) text = visible_breaks(text);
  if (EventStream* const events = EventStream::of_process()) events->error(error.code(), text, of_recipe);
  hear_what_is_said(nullptr);
  if (error.code() == ExitCode::internal)
    text += "\nthis is a bug in plimsoll: please report it with the command and the recipe";
  say(error.code() == ExitCode::does_not_fit ? text : "error: " + text);
  return static_cast<int>(error.code());
}

// An error of the system about a path: a loop of links, a name too long, no permission. If the disk gives up,
// or the process has no more to work with, the run had to stop.
Error as_error(const std::filesystem::filesystem_error& error) {
  std::string path = (error.path2().empty() ? error.path1() : error.path2()).string();
  if (path.empty()) path = "the current folder";  // where it was asked for
  return {is_exhaustion(error.code().value()) ? ExitCode::stopped : ExitCode::usage,
          formatted("{}: {}", printable(path), error.code().message())};
}

// An error that concerns no path: threads above all.
Error as_error(const std::system_error& error) {
  if (error.code() != std::errc::resource_unavailable_try_again)
    return {is_exhaustion(error.code().value()) ? ExitCode::stopped : ExitCode::internal, error.what()};
  return {ExitCode::stopped,
          "the system starts no more threads (ulimit -u and -v limit them); ask for fewer with --threads"};
}

// Descriptors 0 to 2 that are closed would be given to the next files that are opened, a lock or a log, and
// what is printed would go there. Input then is empty, errors are lost, and what goes to standard output
// fails.
void keep_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one: those below it are open.
    if (open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY) != descriptor) _exit(1);
  }
}

// Idle OpenMP threads spin before they sleep, by default so long that a run loses most of its time when other
// programs run (measured: 166 ms a step instead of 42). libgomp reads the setting when it is loaded, so the
// program starts itself again with it; a user's own setting stays.
void restart_with_short_spins(char** argv) {
  constexpr const char* kSpins = "GOMP_SPINCOUNT";
  if (std::getenv(kSpins) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv(kSpins, "20000", 1);
  execv("/proc/self/exe", argv);  // where it fails, the run is only slower
}

// Plans are made of millions of small pieces. glibc puts freed ones aside unmerged and merges all of them on
// every large free, a third of the time of the 7B plan it was measured on (2.28 to 1.52 s); merged at once
// they cost next to nothing.
void merge_freed_memory_at_once() { mallopt(M_MXFAST, 0); }

// Large buffers go back to the system when they are freed. glibc keeps them from the second one on, below
// what came after them: a resumed run, which checks its checkpoint and then loads it, held a buffer twice
// (5.6 MB above its planned peak).
void return_large_buffers() {
  constexpr int kLarge = 4 << 20;  // bytes; planning takes none so large
  mallopt(M_MMAP_THRESHOLD, kLarge);
}

#ifndef __SANITIZE_ADDRESS__
// Libraries and the registration of CUDA's kernels start before main, and crash or end in words of their own
// where memory ends (seen under ulimit -v, in libcudart and libarrow). This runs before all of them, so it
// may use nothing but the system.
void say_that_memory_ends_before_main() {
  constexpr size_t kRoom = 24 << 20;  // bytes; with 8 MiB one failed at one size
  static constexpr std::string_view kText =
      "does not fit: the program and its libraries leave no memory to start with (ulimit -v and -d limit "
      "it)\n";
  // The kernel's least, 64 KiB, ends in a crash of some library.
  constexpr rlim_t kStack = 1 << 20;
  static constexpr std::string_view kStackText =
      "does not fit: the stack (ulimit -s) has less than the 1 MiB that the program needs\n";
  rlimit stack{};
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < kStack) {
    [[maybe_unused]] const ssize_t said = write(STDERR_FILENO, kStackText.data(), kStackText.size());
    _exit(static_cast<int>(ExitCode::does_not_fit));
  }
  void* const room = mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room != MAP_FAILED) {
    munmap(room, kRoom);
    return;
  }
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(static_cast<int>(ExitCode::does_not_fit));
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeAll)() = say_that_memory_ends_before_main;
#endif

int run(int argc, char** argv) {
  CLI::App app{
      "Fine-tunes language models inside a memory budget: plans a run to the byte, then runs exactly that."};
  app.name("plimsoll");
  use_help_text(app);
  use_usage_text(app);
  app.set_version_flag("--version", PLIMSOLL_VERSION);
  app.require_subcommand(1);
  if (argc == 1 && isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1)
    return static_cast<int>(show_first_screen());
  Action action;
#define COMMAND(name) add_##name(app, action);
#include "cli/commands.def"
#undef COMMAND
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, problem;
    const int code = app.exit(error, out, problem);
    print_help(out.str());
    std::string text = problem.str();
    if (text.ends_with('\n')) text.pop_back();
    if (!text.empty()) say(text);
    if (code != 0) return static_cast<int>(ExitCode::usage);
    finish_output();
    return 0;
  }
  const ExitCode code = action();
  finish_output();
  return static_cast<int>(code);
}

int run_or_report(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    return report(error);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(as_error(error));
  } catch (const std::system_error& error) {
    return report(as_error(error));
  } catch (const std::bad_alloc&) {
    return report(DoesNotFitError("does not fit   the system gives no more memory"));
  } catch (const std::exception& error) {
    return report(InternalError(error.what()));
  }
}

// Everything is printed and written: what libraries do after main only costs time, and Arrow's allocator
// crashes there where it found no memory at the start (150 MiB of ulimit -v). The sanitizer looks for leaks
// there.
int leave(int code) {
#ifndef __SANITIZE_ADDRESS__
  std::fflush(nullptr);
  _exit(code);
#endif
  return code;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  plimsoll::keep_standard_streams();
  plimsoll::restart_with_short_spins(argv);
  plimsoll::merge_freed_memory_at_once();
  plimsoll::return_large_buffers();
  // A limit on the size of files (ulimit -f) is an error with a message, not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  const int code = plimsoll::run_or_report(argc, argv);
  if (plimsoll::EventStream* const events = plimsoll::EventStream::of_process()) events->end(code);
  return plimsoll::leave(code);
}
