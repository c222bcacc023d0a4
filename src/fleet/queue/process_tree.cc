#include "fleet/queue/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>

namespace plimsoll::queue {
namespace {

// A file of /proc; empty where it is gone.
std::string read_proc(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = read(file, part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(got));
  close(file);
  return text;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (!folder) return found;
  while (const dirent* one = readdir(folder.get())) {
    const long pid = std::strtol(one->d_name, nullptr, 10);
    if (pid > 0) found.push_back(static_cast<pid_t>(pid));
  }
  return found;
}

std::string in_proc(pid_t pid, const char* name) { return "/proc/" + std::to_string(pid) + "/" + name; }

// Behind the name in brackets, which may hold anything: state, parent.
pid_t parent_of(pid_t pid) {
  const std::string stat = read_proc(in_proc(pid, "stat"));
  const size_t behind = stat.rfind(')');
  if (behind == std::string::npos || behind + 4 > stat.size()) return 0;
  return static_cast<pid_t>(std::strtol(stat.c_str() + behind + 4, nullptr, 10));
}

// "VmHWM:   10020 kB" in bytes.
int64_t field(const std::string& text, std::string_view name) {
  const size_t at = text.find(name);
  return at == std::string::npos ? 0 : std::strtoll(text.c_str() + at + name.size(), nullptr, 10) * 1024;
}

}  // namespace

std::vector<pid_t> descendants(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : all_processes()) children.emplace(parent_of(pid), pid);
  std::vector<pid_t> found = {root};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [first, last] = children.equal_range(found[i]);
    for (auto child = first; child != last; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

std::vector<pid_t> with_environment(std::string_view entry) {
  std::vector<pid_t> found;
  for (const pid_t pid : all_processes()) {
    const std::string environment = '\0' + read_proc(in_proc(pid, "environ"));
    if (environment.find('\0' + std::string(entry) + '\0') != std::string::npos) found.push_back(pid);
  }
  return found;
}

int64_t shared_out_memory(pid_t pid) {
  const std::string rollup = read_proc(in_proc(pid, "smaps_rollup"));
  return rollup.empty() ? field(read_proc(in_proc(pid, "status")), "VmRSS:") : field(rollup, "Pss:");
}

TreeMemory memory_of(const std::vector<pid_t>& processes) {
  if (processes.size() == 1) {
    const std::string status = read_proc(in_proc(processes.front(), "status"));
    return {field(status, "VmRSS:"), field(status, "VmHWM:")};
  }
  TreeMemory sum;
  for (const pid_t pid : processes) sum.now += field(read_proc(in_proc(pid, "smaps_rollup")), "Pss:");
  sum.peak = sum.now;
  return sum;
}

int64_t kernel_kills() {
  const std::string text = read_proc("/proc/vmstat");
  const size_t at = text.find("oom_kill ");
  return at == std::string::npos ? -1 : std::strtoll(text.c_str() + at + 9, nullptr, 10);
}

}  // namespace plimsoll::queue
