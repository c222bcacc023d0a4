// Processes and what they take, from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll::queue {

struct Process {
  pid_t parent = 0;
  std::string name;  // as the kernel cuts it
  int64_t resident_bytes = 0;
  int64_t cpu_ticks = 0;  // of its own, sysconf(_SC_CLK_TCK) to the second
  char state = ' ';       // as proc_pid_stat(5) has it: 'T' is stopped
  int64_t born = 0;       // when it began, in the kernel's ticks: with its number a name for all time

  // True if it does nothing any more, or for now.
  [[nodiscard]] bool stands_still() const {
    return state == 'T' || state == 't' || state == 'Z' || state == 'X';
  }
};
std::optional<Process> read_process(pid_t pid);
// All that there are now.
std::map<pid_t, Process> all_processes();

// Processes by their parents, for callers that ask for more than one tree.
using Children = std::multimap<pid_t, pid_t>;
Children children_of(const std::map<pid_t, Process>& processes);
std::vector<pid_t> descendants(pid_t root, const Children& children);
// All that `root` started, and what those started; not itself.
std::vector<pid_t> descendants(pid_t root, const std::map<pid_t, Process>& processes = all_processes());
// Processes whose environment holds `entry` (NAME=VALUE), whatever their parent is now.
std::vector<pid_t> with_environment(std::string_view entry);

// Memory without files: pages of the processes' own, and shared memory (memfd, /dev/shm, anonymous) once,
// each process its share. Pages of mapped files are the system's, which takes them back when it needs them.
struct TreeMemory {
  int64_t now = 0;
  int64_t peak = 0;        // of one process also what it had before
  int64_t file_bytes = 0;  // of one process: of mapped files, and not in `now`
};
// The proportional share of one process, or where that cannot be read what is resident; 0: it is gone.
int64_t shared_out_memory(pid_t pid);
// While processes share and let go of memory, their shares are read one after the other, and the sum may be
// above what they ever had: memory_standing_still() is exact.
TreeMemory memory_of(const std::vector<pid_t>& processes);
// Memory of all that `root` started: the processes are stopped while it is read (SIGSTOP), for some
// milliseconds, and then continue. Those that were stopped before stay so.
int64_t memory_standing_still(pid_t root);

}  // namespace plimsoll::queue
