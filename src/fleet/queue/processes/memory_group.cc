#include "fleet/queue/processes/memory_group.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "base/format.h"
#include "base/proc_file.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;

bool write_text(const fs::path& file, const std::string& text) {
  const int number = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (number < 0) return false;
  const bool written = write(number, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(number);
  return written;
}

// The path in a line of /proc/self/cgroup, "4:memory:/a/b" or "0::/a/b"; none where there is no such line.
std::optional<std::string> path_of(const std::string& own, const std::string& controller) {
  const std::string key = formatted(":{}:", controller);
  for (size_t at = 0; at < own.size();) {
    const size_t end = std::min(own.find('\n', at), own.size());
    const std::string line = own.substr(at, end - at);
    const size_t first = line.find(':');
    if (first != std::string::npos && line.compare(first, key.size(), key) == 0)
      return line.substr(first + key.size());
    at = end + 1;
  }
  return std::nullopt;
}

fs::path below(const fs::path& mounted, const std::string& path) {
  return (mounted / fs::path(path).relative_path()).lexically_normal();
}

// The number that follows `name` and a blank in a file of lines; 0 where there is no such line.
int64_t counter(const fs::path& file, const std::string& name) {
  const std::string text = "\n" + read_proc(file);
  const size_t at = text.find(formatted("\n{} ", name));
  return at == std::string::npos ? 0 : std::strtoll(text.c_str() + at + name.size() + 2, nullptr, 10);
}

}  // namespace

std::optional<MemoryGroup> MemoryGroup::make(const std::string& name, int64_t limit_bytes,
                                             const fs::path& mounted, const std::string& own) {
  std::error_code problem;
  const std::string limit = std::to_string(limit_bytes);
  if (const auto first = path_of(own, "memory")) {
    const fs::path folder = below(mounted / "memory", *first) / name;
    if (!fs::create_directory(folder, problem) || problem) return std::nullopt;
    MemoryGroup group(folder);
    if (!write_text(folder / "memory.limit_in_bytes", limit)) return std::nullopt;
    return group;
  }
  const auto second = path_of(own, "");
  if (!second || *second == "/") return std::nullopt;
  const fs::path folder = below(mounted, *second).parent_path() / name;
  if (!fs::create_directory(folder, problem) || problem) return std::nullopt;
  MemoryGroup group(folder);
  if (!write_text(folder / "memory.max", limit)) return std::nullopt;
  (void)write_text(folder / "memory.swap.max", "0");   // a reservation is of memory
  (void)write_text(folder / "memory.oom.group", "1");  // since Linux 4.19: all of them, not one
  return group;
}

std::optional<MemoryGroup> MemoryGroup::make(const std::string& name, int64_t limit_bytes) {
  return make(name, limit_bytes, "/sys/fs/cgroup", read_proc("/proc/self/cgroup"));
}

MemoryGroup::~MemoryGroup() {
  if (!folder_.empty()) rmdir(folder_.c_str());
}

bool MemoryGroup::take(pid_t process) const {
  return write_text(folder_ / "cgroup.procs", std::to_string(process));
}

int64_t MemoryGroup::peak() const {
  const int64_t second = std::atoll(read_proc(folder_ / "memory.peak").c_str());  // since Linux 5.19
  return second > 0 ? second : std::atoll(read_proc(folder_ / "memory.max_usage_in_bytes").c_str());
}

bool MemoryGroup::has(pid_t process) const {
  const std::vector<pid_t> all = processes_of_group(folder_);
  return std::find(all.begin(), all.end(), process) != all.end();
}

std::vector<pid_t> processes_of_group(const fs::path& folder) {
  std::vector<pid_t> found;
  std::istringstream lines(read_proc(folder / "cgroup.procs"));
  for (pid_t pid = 0; lines >> pid;) found.push_back(pid);
  return found;
}

// A group around this one that is full ends processes of this one too: their count alone does not show whose
// limit it was.
int64_t MemoryGroup::kills() const {
  const fs::path events = folder_ / "memory.events";
  if (fs::exists(events)) return counter(events, "oom") > 0 ? counter(events, "oom_kill") : 0;
  const bool reached = std::atoll(read_proc(folder_ / "memory.failcnt").c_str()) > 0;
  return reached ? counter(folder_ / "memory.oom_control", "oom_kill") : 0;
}

}  // namespace plimsoll::queue
