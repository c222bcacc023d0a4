// A folder that a command makes at a path that nothing has yet, whole or not at all; of two commands with one
// path, one makes it and the other one fails.
#pragma once

#include <filesystem>
#include <vector>

#include "files/atomic.h"
#include "files/work_folder.h"

namespace plimsoll {

// Without the slash that completion puts at its end. Throws UsageError where something has the path, and
// where it lies in one of the folders that are `read`.
std::filesystem::path require_new(const std::filesystem::path& out,
                                  const std::vector<std::filesystem::path>& read);

class NewFolder {
 public:
  // `out` from require_new(). Throws as WorkFolder does.
  explicit NewFolder(const std::filesystem::path& out);
  // The folder in which its files are written until publish().
  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }
  void publish() { folder_.publish(AtomicFolder::Existing::refuse); }

 private:
  WorkFolder work_;
  AtomicFolder folder_;
};

}  // namespace plimsoll
