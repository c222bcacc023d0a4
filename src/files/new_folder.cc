#include "files/new_folder.h"

#include "base/error.h"
#include "base/format.h"
#include "files/places.h"

namespace plimsoll {

namespace fs = std::filesystem;

fs::path require_new(const fs::path& out, const std::vector<fs::path>& read) {
  const fs::path path = out.has_filename() ? out : out.parent_path();
  if (path.empty() || fs::symlink_status(path).type() != fs::file_type::not_found)
    throw UsageError(out.string() + ": exists already; name a new folder with --out");
  for (const fs::path& folder : read)
    if (is_within(real_path(path), real_path(folder)))
      throw UsageError(
          formatted("{}: lies in {}, which is read and not written to; name a folder elsewhere with --out",
                    out.string(), folder.string()));
  return path;
}

NewFolder::NewFolder(const fs::path& out)
    : work_(out, WorkFolder::beside(out)), folder_(require_new(out, {}), work_.temporary("new")) {}

}  // namespace plimsoll
