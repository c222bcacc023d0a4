#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "cli/commands.h"
#include "cli/help.h"
#include "cli/usage_text.h"

namespace plimsoll {
namespace {

// "error: " before each line of a user's mistake; refusals speak for themselves.
void print_error(const Error& error) {
  if (error.code() == ExitCode::does_not_fit) {
    std::fprintf(stderr, "%s\n", error.what());
    return;
  }
  std::string text = error.what();
  if (error.code() == ExitCode::internal)
    text += "\nthis is a bug in plimsoll: please report it with the command and the recipe";
  std::fprintf(stderr, "error: %s\n", text.c_str());
}

// What the system refuses about a path: a loop of links, a name too long, no permission. Where it is the disk
// that gives up, the run had to stop.
Error as_error(const std::filesystem::filesystem_error& error) {
  const std::string path = (error.path2().empty() ? error.path1() : error.path2()).string();
  const bool disk = error.code() == std::errc::no_space_on_device || error.code() == std::errc::io_error ||
                    error.code() == std::errc::read_only_file_system || error.code().value() == EDQUOT;
  return {disk ? ExitCode::stopped : ExitCode::usage, path + ": " + error.code().message()};
}

// Idle OpenMP threads spin before they sleep, by default so long that a run beside other work loses most of
// its time (measured: 166 ms a step instead of 42). libgomp reads the setting when it is loaded, so the
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

int run(int argc, char** argv) {
  CLI::App app{
      "Fine-tunes language models inside a memory budget: plans a run to the byte, then runs exactly that."};
  app.name("plimsoll");
  use_help_text(app);
  use_usage_text(app);
  app.set_version_flag("--version", PLIMSOLL_VERSION);
  app.require_subcommand(1);
  Action action;
  add_init(app, action);
  add_plan(app, action);
  add_calibrate(app, action);
  add_train(app, action);
  add_report(app, action);
  add_generate(app, action);
  add_chat(app, action);
  add_eval(app, action);
  add_merge(app, action);
  add_convert(app, action);
  add_inspect(app, action);
  add_recipe(app, action);
  add_completion(app, action);
  add_help(app, action);
  add_debug_dump(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  return static_cast<int>(action());
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  plimsoll::restart_with_short_spins(argv);
  plimsoll::merge_freed_memory_at_once();
  // A limit on the size of files (ulimit -f) is an error with a message, not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return plimsoll::run(argc, argv);
  } catch (const plimsoll::Error& error) {
    plimsoll::print_error(error);
    return static_cast<int>(error.code());
  } catch (const std::filesystem::filesystem_error& error) {
    plimsoll::print_error(plimsoll::as_error(error));
    return static_cast<int>(plimsoll::as_error(error).code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "does not fit   the system gives no more memory\n");
    return static_cast<int>(plimsoll::ExitCode::does_not_fit);
  } catch (const std::exception& error) {
    std::fprintf(stderr,
                 "error: %s\nthis is a bug in plimsoll: please report it with the command and the recipe\n",
                 error.what());
    return static_cast<int>(plimsoll::ExitCode::internal);
  }
}
