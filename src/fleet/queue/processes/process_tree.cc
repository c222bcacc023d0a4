#include "fleet/queue/processes/process_tree.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>

#include "base/format.h"
#include "base/proc_file.h"
#include "base/strings.h"

namespace plimsoll::queue {
namespace {

std::vector<pid_t> all_pids() {
  std::vector<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (!folder) return found;
  while (const dirent* one = readdir(folder.get())) {
    const long pid = std::strtol(one->d_name, nullptr, 10);
    if (pid > 0) found.push_back(static_cast<pid_t>(pid));
  }
  return found;
}

std::string in_proc(pid_t pid, const char* name) { return formatted("/proc/{}/{}", pid, name); }

// If its maps may not be read (prctl(PR_SET_DUMPABLE)), all that it shares counts as its own.
int64_t share_of(pid_t pid) {
  const std::string rollup = read_proc(in_proc(pid, "smaps_rollup"));
  if (rollup.find("Pss_Anon:") != std::string::npos)
    return kib_field(rollup, "Pss_Anon") + kib_field(rollup, "Pss_Shmem");
  if (!rollup.empty()) return kib_field(rollup, "Pss");  // older kernels do not tell them apart
  const std::string status = read_proc(in_proc(pid, "status"));
  return kib_field(status, "RssAnon") + kib_field(status, "RssShmem");
}

}  // namespace

// Behind the name in brackets, which may hold anything: fields 3 on of proc_pid_stat(5).
std::optional<Process> read_process(pid_t pid) {
  const std::string stat = read_proc(in_proc(pid, "stat"));
  const size_t open = stat.find('('), close = stat.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 > stat.size()) return std::nullopt;
  const std::vector<std::string> fields = split(std::string_view(stat).substr(close + 2), ' ');
  if (fields.size() < 22) return std::nullopt;
  const auto number = [&](size_t field) { return std::strtoll(fields[field - 3].c_str(), nullptr, 10); };
  return Process{static_cast<pid_t>(number(4)),          stat.substr(open + 1, close - open - 1),
                 number(24) * sysconf(_SC_PAGESIZE),     number(14) + number(15),
                 fields[0].empty() ? ' ' : fields[0][0], number(22)};
}

std::map<pid_t, Process> all_processes() {
  std::map<pid_t, Process> found;
  for (const pid_t pid : all_pids())
    if (std::optional<Process> process = read_process(pid)) found.emplace(pid, std::move(*process));
  return found;
}

Children children_of(const std::map<pid_t, Process>& processes) {
  Children children;
  for (const auto& [pid, process] : processes) children.emplace(process.parent, pid);
  return children;
}

std::vector<pid_t> descendants(pid_t root, const std::map<pid_t, Process>& processes) {
  return descendants(root, children_of(processes));
}

std::vector<pid_t> descendants(pid_t root, const Children& children) {
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
  for (const pid_t pid : all_pids()) {
    const std::string environment = '\0' + read_proc(in_proc(pid, "environ"));
    if (environment.find('\0' + std::string(entry) + '\0') != std::string::npos) found.push_back(pid);
  }
  return found;
}

int64_t shared_out_memory(pid_t pid) {
  const std::string rollup = read_proc(in_proc(pid, "smaps_rollup"));
  return rollup.empty() ? kib_field(read_proc(in_proc(pid, "status")), "VmRSS") : kib_field(rollup, "Pss");
}

TreeMemory memory_of(const std::vector<pid_t>& processes) {
  if (processes.size() == 1) {
    const std::string status = read_proc(in_proc(processes.front(), "status"));
    const int64_t now = kib_field(status, "RssAnon") + kib_field(status, "RssShmem");
    const int64_t file_bytes = kib_field(status, "RssFile");
    return {now, std::max(now, kib_field(status, "VmHWM") - file_bytes), file_bytes};
  }
  TreeMemory sum;
  for (const pid_t pid : processes) sum.now += share_of(pid);
  sum.peak = sum.now;
  return sum;
}

int64_t memory_standing_still(pid_t root) {
  constexpr int kTries = 100;  // of 2 ms: what waits for a disk may not stop at once
  std::set<pid_t> stopped;
  std::vector<pid_t> tree;
  for (int tries = 0; tries < kTries; ++tries) {
    const std::map<pid_t, Process> processes = all_processes();
    tree = descendants(root, processes);
    bool still = true;
    for (const pid_t pid : tree) {
      if (processes.at(pid).stands_still()) continue;
      still = false;
      if (stopped.insert(pid).second) kill(pid, SIGSTOP);
    }
    if (still) break;
    usleep(2000);
  }
  const int64_t bytes = memory_of(tree).now;
  for (const pid_t pid : stopped) kill(pid, SIGCONT);
  return bytes;
}

}  // namespace plimsoll::queue
