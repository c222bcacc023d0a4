#include "files/places.h"

namespace plimsoll {

namespace fs = std::filesystem;

fs::path real_path(const fs::path& path) {
  const fs::path whole = fs::weakly_canonical(fs::absolute(path));
  return whole.has_filename() ? whole : whole.parent_path();
}

bool is_within(fs::path path, const fs::path& folder) {
  std::error_code absent;
  for (;; path = path.parent_path()) {
    if (path == folder || fs::equivalent(path, folder, absent)) return true;
    if (path == path.parent_path()) return false;
  }
}

}  // namespace plimsoll
