// A control group of its own for what one command starts, where this process may make one: the kernel then
// holds all its processes together to a limit, at every moment, and counts those that it has ended for it.
//
// Version 1: below the group that this process is in. Version 2: next to it, as a group with processes has
// none below it; a user may do that in services of their systemd, whose groups are theirs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace plimsoll::queue {

// Processes in a group, by its folder.
std::vector<pid_t> processes_of_group(const std::filesystem::path& folder);

class MemoryGroup {
 public:
  // Nullopt where groups may not be made, have no memory to count, or would not take processes of this one.
  // `mounted`: where groups are seen; `own`: the text of /proc/self/cgroup.
  static std::optional<MemoryGroup> make(const std::string& name, int64_t limit_bytes,
                                         const std::filesystem::path& mounted, const std::string& own);
  static std::optional<MemoryGroup> make(const std::string& name, int64_t limit_bytes);

  MemoryGroup(MemoryGroup&& other) noexcept : folder_(std::move(other.folder_)) { other.folder_.clear(); }
  MemoryGroup& operator=(MemoryGroup&& other) noexcept {
    folder_.swap(other.folder_);
    return *this;
  }
  ~MemoryGroup();  // takes it away, if nothing is left in it

  // Takes a process and what it starts from now on. Safe between fork and exec.
  [[nodiscard]] bool take(pid_t process) const;
  // Processes that the kernel ended as this limit was reached.
  [[nodiscard]] int64_t kills() const;
  // The most that all of them took together, files that they read included; 0 where the kernel does not
  // report it.
  [[nodiscard]] int64_t peak() const;
  // Returns true if the group has the process: then the kernel holds the limit.
  [[nodiscard]] bool has(pid_t process) const;
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  explicit MemoryGroup(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path folder_;
};

}  // namespace plimsoll::queue
