#include "fleet/queue/store/private_files.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "files/atomic.h"

namespace plimsoll::queue {

namespace fs = std::filesystem;

mode_t own_umask() {
  const mode_t mask = umask(kOwnersAlone);
  umask(mask);
  return mask;
}

void make_private(const fs::path& folder) {
  const Umask mask(own_umask() & kOwnersAlone);  // a folder that its owner may not enter would stay
  const auto cannot_be_made = [](const fs::path& path, const std::error_code& why) {
    return UsageError(
        formatted("{}: cannot be made: {}. The queue is kept there; PLIMSOLL_QUEUE_DIR names another folder",
                  printable(path.string()), why.message()));
  };
  try {
    if (!folder.parent_path().empty()) make_folders(folder.parent_path());
  } catch (const fs::filesystem_error& error) {
    throw cannot_be_made(error.path1(), error.code());
  }
  const bool made = mkdir(folder.c_str(), 0700) == 0;
  if (made) flush_name(folder);
  if (!made && errno != EEXIST) throw cannot_be_made(folder, {errno, std::generic_category()});
  // A link of the owner's own leads to a folder that the rest holds for; one of another user leads nowhere.
  struct stat found {};
  if (lstat(folder.c_str(), &found) == 0 && S_ISLNK(found.st_mode) && found.st_uid == geteuid() &&
      stat(folder.c_str(), &found) != 0)
    throw UsageError(printable(folder.string()) + ": is a link that leads to no folder");
  if (!S_ISDIR(found.st_mode)) throw UsageError(printable(folder.string()) + ": is no folder");
  if (found.st_uid != geteuid())
    throw UsageError(printable(folder.string()) + ": belongs to another user; a queue is its owner's alone");
  if ((found.st_mode & 077) != 0)
    throw UsageError(printable(folder.string()) +
                     ": others may enter it; a queue is its owner's alone: chmod 700");
  if ((found.st_mode & 0700) != 0700)
    throw UsageError(printable(folder.string()) + ": its owner may not enter it or write there: chmod 700");
}

}  // namespace plimsoll::queue
