// One run writes to a folder at a time.
#pragma once

#include <filesystem>

namespace plimsoll {

// Held from construction to destruction. The kernel drops the lock when the process ends however it ends, so
// it never goes stale; the file itself stays.
class RunLock {
 public:
  // Creates the folder when it is absent. Throws UsageError naming the folder, and the process that holds it.
  explicit RunLock(const std::filesystem::path& folder);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

 private:
  int descriptor_ = -1;
};

// Whether a run holds the folder now.
bool is_locked(const std::filesystem::path& folder);

}  // namespace plimsoll
