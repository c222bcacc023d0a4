#include "train/save_space.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"

namespace plimsoll {

namespace fs = std::filesystem;
namespace {

// File systems that count none beforehand report 0 of both.
void require_files(const fs::path& folder, int64_t files) {
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0 || status.f_files == 0) return;
  const auto free = static_cast<int64_t>(status.f_favail);
  if (free >= files) return;
  throw StoppedError(formatted(
      "{}: the first checkpoint and the logs take {} files, and the disk has room for {} (its inodes, "
      "df -i): No space left on device. Remove files there or choose another folder with output.",
      folder.string(), format_count(files), format_count(free)));
}

}  // namespace

std::string require_save_space(const RunFolder& folder, int64_t files, int64_t bytes, int64_t result_bytes,
                               int64_t checkpoints) {
  require_files(folder.path(), files);
  const int64_t result = folder.has_hard_links() ? 0 : result_bytes;
  require_disk_space(folder.path(), bytes + result, "the first checkpoint");
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < static_cast<rlim_t>(bytes))
    throw StoppedError(formatted(
        "{}: a checkpoint takes {}, and a limit (ulimit -f) ends files at {}: File too large",
        folder.path().string(), format_bytes(bytes), format_bytes(static_cast<int64_t>(limit.rlim_cur))));
  const int64_t free = free_disk_bytes(folder.path());
  if (free >= checkpoints * bytes + result) return "";
  return formatted(
      "note    {} has room for {} checkpoints of {}, and up to {} will be there at a time (save.keep)",
      folder.path().string(), format_count((free - result) / bytes), format_bytes(bytes),
      format_count(checkpoints));
}

}  // namespace plimsoll
