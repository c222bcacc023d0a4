// Small files as they were at one moment: copied into a file without a name, they can be read whatever
// becomes of them, of their folder, and of the folder that took the copy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "files/file.h"

namespace plimsoll {

class KeptFiles {
 public:
  // Copies the files `names` of `folder`; all must be there. `temporary` is a path of ours, free again at the
  // end. Throws as open_regular() does, UsageError for a file above 512 MiB, StoppedError where the disk has
  // no room.
  KeptFiles(const std::filesystem::path& folder, const std::vector<std::string>& names,
            const std::filesystem::path& temporary);

  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] int64_t bytes() const;  // of all of them
  // Writes a new file with the content of one of the names. Throws StoppedError.
  void write(const std::string& name, const std::filesystem::path& to) const;

 private:
  struct Place {
    int64_t start = 0;
    int64_t bytes = 0;
  };

  File copies_;
  std::map<std::string, Place> places_;
};

}  // namespace plimsoll
