#include "io/atomic.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "io/file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void stop(const fs::path& path, const std::string& action, int error) {
  throw StoppedError(path.string() + ": cannot " + action + ": " + system_message(error) + ".");
}

// Files and folders alike: a name is durable only when the folder that holds it has been flushed.
void sync_path(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) stop(path, "open to flush it", errno);
  const int result = fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  if (result != 0) stop(path, "flush to disk", error);
}

// The folder that holds `path`; "." for a bare name.
fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    stop(to, "give " + from.filename().string() + " that name", errno);
}

// Puts folder `from` at `to`, where a folder stands; that one ends up at `from`.
void swap_folders(const fs::path& from, const fs::path& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) stop(to, "replace", errno);
  // Network file systems do not exchange names. Between these renames the name is absent, but both folders
  // are whole: the old one under ".old".
  fs::path old = to;
  old += ".old";
  fs::remove_all(old);
  rename_path(to, old);
  rename_path(from, to);
  rename_path(old, from);
}

}  // namespace

void write_file_atomically(const fs::path& path, std::string_view content) {
  fs::path temporary = path;
  temporary += ".tmp." + std::to_string(getpid());
  try {
    File file = File::create(temporary);
    file.write(0, as_bytes(content));
    file.sync();
    rename_path(temporary, path);
  } catch (const Error&) {
    std::error_code ignored;  // the first error is the one to report
    fs::remove(temporary, ignored);
    throw;
  }
  sync_path(parent_of(path));
}

AtomicFolder::AtomicFolder(fs::path final_path) : final_(std::move(final_path)), temporary_(final_) {
  temporary_ += ".tmp";
  try {
    fs::remove_all(temporary_);
    fs::create_directories(temporary_);
  } catch (const fs::filesystem_error& error) {
    stop(temporary_, "create", error.code().value());
  }
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;  // a destructor cannot report; the next run removes what stays
  if (!published_) fs::remove_all(temporary_, ignored);
}

void AtomicFolder::publish() {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(temporary_))
    sync_path(entry.path());
  sync_path(temporary_);
  const bool replaces = fs::exists(final_);
  if (replaces)
    swap_folders(temporary_, final_);
  else
    rename_path(temporary_, final_);
  published_ = true;
  sync_path(parent_of(final_));
  std::error_code ignored;  // the new folder stands; an old one that stays is removed by the next run
  if (replaces) fs::remove_all(temporary_, ignored);
}

void remove_folder_atomically(const fs::path& folder) {
  fs::path going = folder;
  going += ".tmp";
  fs::remove_all(going);
  rename_path(folder, going);
  fs::remove_all(going);
}

void remove_leftovers(const fs::path& folder) {
  if (!fs::is_directory(folder)) return;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  for (const fs::path& path : found) {
    if (path.extension() == ".old" && fs::is_directory(path)) {
      fs::path whole = path;
      whole.replace_extension();
      if (fs::exists(whole)) {
        fs::remove_all(path);
      } else {
        rename_path(path, whole);
      }
    }
    const std::string name = path.filename().string();
    const size_t at = name.rfind(".tmp");
    if (at == std::string::npos) continue;
    const std::string_view process = std::string_view(name).substr(at + 4);
    if (process.empty() ||
        (process.size() > 1 && process.substr(1).find_first_not_of("0123456789") == std::string::npos))
      fs::remove_all(path);
  }
}

void link_atomically(const fs::path& from, const fs::path& to) {
  std::error_code absent;
  if (fs::equivalent(from, to, absent)) return;  // rename() would leave both names of one file
  fs::path temporary = to;
  temporary += ".tmp";
  fs::remove(temporary);
  std::error_code failed;
  fs::create_hard_link(from, temporary, failed);
  if (failed) fs::copy_file(from, temporary, failed);
  if (failed) stop(to, "write", failed.value());
  rename_path(temporary, to);
}

int64_t free_disk_bytes(const fs::path& path) {
  fs::path place = fs::absolute(path);
  while (!fs::exists(place) && place.has_relative_path()) place = place.parent_path();
  struct statvfs status {};
  if (statvfs(place.c_str(), &status) != 0) stop(place, "read the free disk space", errno);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

void require_disk_space(const fs::path& path, int64_t bytes, std::string_view what) {
  const int64_t free = free_disk_bytes(path);
  if (free >= bytes) return;
  throw StoppedError(path.string() + ": " + std::string(what) + " takes " + format_bytes(bytes) + ", " +
                     format_bytes(free) + " are free there. Free " + format_bytes(bytes - free) +
                     " or choose another folder with output.");
}

}  // namespace plimsoll
