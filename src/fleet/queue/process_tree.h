// Processes and what they take, from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::queue {

struct Process {
  pid_t parent = 0;
  std::string name;  // as the kernel cuts it
  int64_t resident_bytes = 0;
  int64_t cpu_ticks = 0;  // of its own, sysconf(_SC_CLK_TCK) to the second
};
// All that there are now.
std::map<pid_t, Process> all_processes();

// All that `root` started, and what those started; not itself.
std::vector<pid_t> descendants(pid_t root, const std::map<pid_t, Process>& processes = all_processes());
// Those whose environment holds `entry` (NAME=VALUE), whoever their parent is now.
std::vector<pid_t> with_environment(std::string_view entry);

struct TreeMemory {
  int64_t now = 0;   // of one process what is resident, of several their proportional shares
  int64_t peak = 0;  // of one process its highest
};
// The proportional share of one process, or where that cannot be read what is resident; 0: it is gone.
int64_t shared_out_memory(pid_t pid);
TreeMemory memory_of(const std::vector<pid_t>& processes);

}  // namespace plimsoll::queue
