// A folder that a command makes at a path that nothing has yet, whole or not at all; of two commands with one
// path, one makes it and the other is told.
#pragma once

#include <filesystem>

#include "io/atomic.h"
#include "io/work_folder.h"

namespace plimsoll {

// Without the slash that completion puts at its end. Throws UsageError where something has the path.
std::filesystem::path require_new(const std::filesystem::path& out);

class NewFolder {
 public:
  // `out` from require_new(). Throws as WorkFolder does.
  explicit NewFolder(const std::filesystem::path& out);
  // Where its files are written until publish().
  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }
  void publish() { folder_.publish(AtomicFolder::Existing::refuse); }

 private:
  WorkFolder work_;
  AtomicFolder folder_;
};

}  // namespace plimsoll
