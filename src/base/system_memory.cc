#include "base/system_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/proc_file.h"
#include "base/strings.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// A number in a cgroup file; none for "max", for a missing file, and for v1's "unlimited" (close to 2^63).
std::optional<int64_t> cgroup_number(const fs::path& path) {
  const std::string text(trim(read_proc(path)));
  if (text.empty() || text == "max") return std::nullopt;
  const int64_t value = std::strtoll(text.c_str(), nullptr, 10);
  constexpr int64_t kUnlimited = int64_t{1} << 60;
  if (value >= kUnlimited) return std::nullopt;
  return value;
}

// The names of a controller's files.
struct CgroupFiles {
  const char* limit;
  const char* usage;
  std::array<const char*, 2> page_cache;  // lines of memory.stat
};
constexpr CgroupFiles kVersion1 = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", {"inactive_file", "active_file"}};

// The memory that a group uses and could not give back, in bytes.
std::optional<int64_t> cgroup_use(const fs::path& folder, const CgroupFiles& files) {
  std::optional<int64_t> use = cgroup_number(folder / files.usage);
  if (!use) return std::nullopt;
  for (const std::string& line : split(read_proc(folder / "memory.stat"), '\n')) {
    const auto words = split(line, ' ');
    if (words.size() == 2 && (words[0] == files.page_cache[0] || words[0] == files.page_cache[1]))
      *use -= std::strtoll(words[1].c_str(), nullptr, 10);
  }
  return std::max<int64_t>(0, *use);
}

// Lowers `free` to what the groups from `group` up to `root` still allow.
void apply_cgroup(const fs::path& root, const std::string& group, const CgroupFiles& files,
                  FreeMemory& free) {
  fs::path folder = root / fs::path(group).relative_path();
  for (;;) {
    const auto limit = cgroup_number(folder / files.limit);
    const auto use = cgroup_use(folder, files);
    if (limit && use && *limit - *use < free.bytes) {
      free.bytes = std::max<int64_t>(0, *limit - *use);
      free.source = (folder / files.limit).string();
    }
    if (folder == root || folder.parent_path() == folder) return;
    folder = folder.parent_path();
  }
}

}  // namespace

ProcessMemory process_memory() {
  const std::string status = read_proc("/proc/self/status");
  return {kib_field(status, "VmRSS"), kib_field(status, "RssAnon") + kib_field(status, "RssShmem"),
          kib_field(status, "VmHWM"), kib_field(status, "VmData"), kib_field(status, "RssFile")};
}

int64_t resident_bytes() {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 64> text{};
  const ssize_t count = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  long long size = 0, resident = 0;
  if (count <= 0 || std::sscanf(text.data(), "%lld %lld", &size, &resident) != 2) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t total_memory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

namespace {

std::string meminfo_text() {
  const char* stated = std::getenv("PLIMSOLL_MEMINFO");
  return read_proc(stated != nullptr ? stated : "/proc/meminfo");
}

}  // namespace

SwapMemory swap_memory() {
  const std::string meminfo = meminfo_text();
  const int64_t total = kib_field(meminfo, "SwapTotal");
  return {total, std::max<int64_t>(0, total - kib_field(meminfo, "SwapFree"))};
}

FreeMemory free_memory() {
  const std::string meminfo = meminfo_text();
  FreeMemory free{kib_field(meminfo, "MemAvailable"), "MemAvailable"};
  return free_in_cgroups(read_proc("/proc/self/cgroup"), "/sys/fs/cgroup", free);
}

FreeMemory free_in_cgroups(const std::string& groups, const fs::path& root, FreeMemory free) {
  for (const std::string& line : split(groups, '\n')) {
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    if (parts[1].empty()) apply_cgroup(root, parts[2], kVersion2, free);
    if (parts[1].find("memory") != std::string::npos)
      apply_cgroup(root / "memory", parts[2], kVersion1, free);
  }
  return free;
}

int64_t kernel_kills() {
  const std::string text = read_proc("/proc/vmstat");
  const size_t at = text.find("oom_kill ");
  return at == std::string::npos ? -1 : std::strtoll(text.c_str() + at + 9, nullptr, 10);
}

bool keeps_files_in_memory(const fs::path& folder) {
  std::error_code ignored;
  fs::path at = fs::absolute(folder, ignored);
  struct statfs info {};
  while (::statfs(at.c_str(), &info) != 0) {
    if (at == at.parent_path()) return false;
    at = at.parent_path();
  }
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

namespace {

std::optional<int64_t> soft_limit(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

std::optional<int64_t> data_limit() { return soft_limit(RLIMIT_DATA); }
std::optional<int64_t> locked_limit() { return soft_limit(RLIMIT_MEMLOCK); }

namespace {

// The soft limit; none: the hard one.
void limit_data(std::optional<int64_t> bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0) return;
  limit.rlim_cur = bytes ? static_cast<rlim_t>(*bytes) : limit.rlim_max;
  setrlimit(RLIMIT_DATA, &limit);
}

}  // namespace

GrowthWithinCgroups::GrowthWithinCgroups() : before_(data_limit()) {
  constexpr int64_t kUnlimited = int64_t{1} << 60;
  constexpr int64_t kOfKernel = 1 << 20;  // page tables and the like: 0.7 MB were measured
  const FreeMemory free =
      free_in_cgroups(read_proc("/proc/self/cgroup"), "/sys/fs/cgroup", {kUnlimited, "no cgroup"});
  if (free.bytes == kUnlimited) return;
  bytes_ = std::max<int64_t>(0, free.bytes - kOfKernel);
  const int64_t limit = process_memory().data + *bytes_;
  limit_data(before_ ? std::min(*before_, limit) : limit);
}

GrowthWithinCgroups::~GrowthWithinCgroups() {
  if (bytes_) limit_data(before_);
}

}  // namespace plimsoll
