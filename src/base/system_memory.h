// Memory as the kernel reports it: what is free, what this process uses, and what limits it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace plimsoll {

// This process's memory, in bytes (/proc/self/status).
struct ProcessMemory {
  int64_t rss = 0;       // VmRSS
  int64_t held = 0;      // RssAnon and RssShmem: resident pages that are no file's, and count nowhere as free
  int64_t peak_rss = 0;  // VmHWM
  int64_t data = 0;      // VmData: what RLIMIT_DATA counts
  int64_t files = 0;     // RssFile: pages of mapped files, which are code here and can be dropped
};
ProcessMemory process_memory();
// The process's resident bytes now (/proc/self/statm). Allocates nothing.
int64_t resident_bytes();

// This machine's memory, in bytes.
int64_t total_memory();

// This machine's swap, in bytes (used: SwapTotal less SwapFree); `total` is 0 where it has none.
struct SwapMemory {
  int64_t total = 0, used = 0;
};
SwapMemory swap_memory();

struct FreeMemory {
  int64_t bytes = 0;
  std::string source;  // "MemAvailable" or the cgroup file that is tighter
};
// PLIMSOLL_MEMINFO names a file instead of /proc/meminfo, for containers that show their own, and tests. The
// least of MemAvailable and, for cgroups v2 and v1, limit minus usage, up the tree. The pages of files that a
// group has in the page cache do not count as used: the kernel gives them back before it refuses anything.
FreeMemory free_memory();
// The same from `free` on, for the groups of a text like /proc/self/cgroup, mounted at `root`.
FreeMemory free_in_cgroups(const std::string& groups, const std::filesystem::path& root, FreeMemory free);

// Processes that the kernel has killed for want of memory since it started; -1 where it does not count them.
int64_t kernel_kills();

// Returns true if files below `folder` stay in memory (tmpfs). A path that does not exist yet counts as its
// parent.
bool keeps_files_in_memory(const std::filesystem::path& folder);

// RLIMIT_DATA, none when unlimited.
std::optional<int64_t> data_limit();
// RLIMIT_MEMLOCK, likewise.
std::optional<int64_t> locked_limit();

// While it lives, this process's data grows by no more than its cgroups leave free, less what the kernel
// takes for pages: an allocation beyond throws std::bad_alloc, where the kernel would end the process at some
// page of it. Nothing where no cgroup has a limit. Memory that was allocated before and is first written now
// is not seen.
class GrowthWithinCgroups {
 public:
  GrowthWithinCgroups();
  ~GrowthWithinCgroups();
  GrowthWithinCgroups(const GrowthWithinCgroups&) = delete;
  GrowthWithinCgroups& operator=(const GrowthWithinCgroups&) = delete;
  // Bytes of growth; none: unlimited.
  [[nodiscard]] std::optional<int64_t> bytes() const { return bytes_; }

 private:
  std::optional<int64_t> before_;  // the limit on the process's data
  std::optional<int64_t> bytes_;
};

}  // namespace plimsoll
