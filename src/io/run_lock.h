// One run writes to a folder at a time.
#pragma once

#include <filesystem>
#include <vector>

namespace plimsoll {

// Held from construction to destruction. The kernel drops the lock when the process ends however it ends, so
// it never goes stale. The lock's file stays with what the run wrote; where there is nothing beside it, it
// goes, and the folders that were made for it go too: a run that is refused leaves no trace.
class RunLock {
 public:
  // Creates the folder when it is absent. Throws UsageError naming the folder, and the process that holds it.
  explicit RunLock(const std::filesystem::path& folder);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

 private:
  void open(const std::filesystem::path& path);
  // False where the file was removed between its opening and its locking.
  [[nodiscard]] bool lock(const std::filesystem::path& path);
  void write_holder(const std::filesystem::path& path);
  void remove_traces() const noexcept;

  std::filesystem::path folder_;
  std::vector<std::filesystem::path> made_;  // folders that were not there, outermost first
  int descriptor_ = -1;
};

// Whether a run holds the folder now.
bool is_locked(const std::filesystem::path& folder);

}  // namespace plimsoll
