#include "cli/parent_process.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

pid_t awaited = 0;
volatile std::sig_atomic_t ended = 0;

// The kernel sends the signal at the end of the thread that started this process, and again for that of each thread
// that is its parent afterwards. A second SIGTERM would end a run that saves.
void look_for_parent(int) {
  if (ended != 0 || getppid() == awaited) return;
  ended = 1;
  kill(getpid(), SIGTERM);
}

}  // namespace

void end_with_parent(int64_t parent) {
  const int notice = SIGRTMIN + 2;
  awaited = static_cast<pid_t>(parent);
  struct sigaction action {};
  action.sa_handler = look_for_parent;
  action.sa_flags = SA_RESTART;
  sigaction(notice, &action, nullptr);
  prctl(PR_SET_PDEATHSIG, notice);
  // It may have ended before the kernel was asked.
  if (getppid() != awaited)
    throw UsageError(
        formatted("--die-with-parent: process {} did not start this one, or is gone already", parent));
}

}  // namespace plimsoll
