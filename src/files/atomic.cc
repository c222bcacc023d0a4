#include "files/atomic.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "files/file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void stop_at(const fs::path& path, const std::string& action, int error) {
  throw StoppedError(formatted("{}: cannot {}: {}.", path.string(), action, system_message(error)));
}

// The folder that holds `path`; "." for a bare name.
fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// The folder itself may be a link.
void sync_parent(const fs::path& path) { flush_to_disk(parent_of(path) / "."); }

void rename_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    stop_at(to, formatted("give {} that name", from.filename().string()), errno);
}

// Puts folder `from` at `to`, where a folder stands; that one ends up at `from`.
void swap_folders(const fs::path& from, const fs::path& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) stop_at(to, "replace", errno);
  // Network file systems do not exchange names.
  const fs::path old = set_aside(from);
  fs::remove_all(old);
  rename_path(to, old);
  rename_path(from, to);
  rename_path(old, from);
}

void rename_to_new_name(const fs::path& from, const fs::path& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  const int error = errno;
  const bool taken = error == EEXIST || fs::symlink_status(to).type() != fs::file_type::not_found;
  if (taken) throw UsageError(to.string() + ": exists already; name a new one");
  if (error != EINVAL && error != ENOSYS)
    stop_at(to, formatted("give {} that name", from.filename().string()), error);
  rename_path(from, to);
}

// An error that the user can mend by another path or other rights; a failing disk is not one.
bool is_about_the_place(int error) {
  for (const int place : {EACCES, EPERM, EROFS, ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, EISDIR, ENXIO, EBUSY})
    if (error == place) return true;
  return false;
}

[[noreturn]] void cannot_write(const fs::path& path, int error) {
  const std::string text = formatted("{}: cannot be written: {}.", path.string(), system_message(error));
  if (is_about_the_place(error)) throw UsageError(text);
  throw StoppedError(text);
}

class OpenFile {
 public:
  OpenFile(const fs::path& path, int flags, mode_t mode) : descriptor_(::open(path.c_str(), flags, mode)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  [[nodiscard]] int number() const { return descriptor_; }
  // 0, or errno.
  [[nodiscard]] int write(std::string_view content) const {
    while (!content.empty()) {
      const ssize_t count = ::write(descriptor_, content.data(), content.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno;
      content.remove_prefix(static_cast<size_t>(count));
    }
    return 0;
  }

 private:
  int descriptor_;
};

void write_into(const fs::path& path, std::string_view content) {
  const OpenFile file(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                      0);  // a FIFO without a reader: ENXIO
  if (file.number() < 0) cannot_write(path, errno);
  if (fcntl(file.number(), F_SETFL, O_WRONLY) != 0) cannot_write(path, errno);
  if (const int error = file.write(content); error != 0) cannot_write(path, error);
}

// A path that is a standard stream: what it leads to stays what it is, a file too.
bool is_stream(const fs::path& path) {
  const std::string name = path.lexically_normal().string();
  for (const char* const start : {"/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/"})
    if (name.starts_with(start)) return true;
  return false;
}

// Makes a file next to `path`, under a name that is free.
fs::path make_beside(const fs::path& path, std::string_view content, mode_t mode) {
  static std::atomic<int> number = 0;
  for (;;) {
    const std::string name = formatted(".plimsoll-{}-{}", getpid(), ++number);
    const fs::path temporary = parent_of(path) / name;
    const OpenFile file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file.number() < 0 && errno == EEXIST) continue;
    if (file.number() < 0) cannot_write(path, errno);
    int error = file.write(content);
    if (error == 0 && fsync(file.number()) != 0) error = errno;
    if (error == 0) return temporary;
    ::unlink(temporary.c_str());
    cannot_write(path, error);
  }
}

}  // namespace

// A name is durable only when the folder that holds it has been flushed.
void flush_to_disk(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) stop_at(path, "open to flush it", errno);
  const int result = fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  if (result != 0) stop_at(path, "flush to disk", error);
}

void flush_name(const fs::path& path) noexcept {
  try {
    sync_parent(path);
  } catch (const std::exception&) {  // a folder that may not be read, or a disk that flushes no folders
  }
}

void make_folders(const fs::path& folder) {
  std::vector<fs::path> absent;
  std::error_code failed;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, failed); path = path.parent_path()) {
    if (path.has_filename()) absent.push_back(path);
    if (path == path.parent_path()) break;
  }
  fs::create_directories(folder);
  for (auto made = absent.rbegin(); made != absent.rend(); ++made) flush_name(*made);
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  if (is_stream(path)) return write_into(path, content);
  std::error_code failed;
  const bool is_link = fs::is_symlink(fs::symlink_status(path, failed));
  failed.clear();  // nothing there
  const fs::path target = is_link ? fs::weakly_canonical(path, failed) : path;
  struct stat status {};
  const bool exists = !failed && ::stat(target.c_str(), &status) == 0;
  if (failed) cannot_write(path, failed.value());
  if (exists && S_ISDIR(status.st_mode)) cannot_write(path, EISDIR);
  if (exists && S_ISBLK(status.st_mode)) throw UsageError(path.string() + ": is a disk, a file is wanted.");
  if (exists && !S_ISREG(status.st_mode)) return write_into(path, content);
  const fs::path temporary = make_beside(target, content, exists ? status.st_mode & 0777U : kNewFileMode);
  if (::rename(temporary.c_str(), target.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    cannot_write(path, error);
  }
  sync_parent(target);
}

void write_new_file(const fs::path& path, std::string_view content) {
  const fs::path temporary = make_beside(path, content, kNewFileMode);
  try {
    rename_to_new_name(temporary, path);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_parent(path);
}

void put_file(const fs::path& temporary, const fs::path& path, std::string_view content) {
  std::error_code ignored;  // the first error is the one to report
  fs::remove(temporary, ignored);
  try {
    File file = File::create(temporary);
    file.write(0, as_bytes(content));
    file.sync();
    rename_path(temporary, path);
  } catch (const Error&) {
    fs::remove(temporary, ignored);
    throw;
  }
  sync_parent(path);
}

bool replace_file(const fs::path& temporary, const fs::path& path, std::string_view content) {
  {
    const OpenFile file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, kNewFileMode);
    if (file.number() >= 0 && file.write(content) == 0 && ::rename(temporary.c_str(), path.c_str()) == 0)
      return true;
  }
  ::unlink(temporary.c_str());
  return false;
}

AtomicFolder::AtomicFolder(fs::path final_path, fs::path temporary)
    : final_(std::move(final_path)), temporary_(std::move(temporary)) {
  try {
    fs::remove_all(temporary_);
    fs::create_directory(temporary_);
  } catch (const fs::filesystem_error& error) {
    stop_at(temporary_, "create", error.code().value());
  }
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;  // a destructor cannot report; the next command removes what stays
  if (!published_) fs::remove_all(temporary_, ignored);
}

void AtomicFolder::publish(Existing existing) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(temporary_))
    flush_to_disk(entry.path());
  flush_to_disk(temporary_);
  const bool replaces = existing == Existing::replace && fs::is_directory(fs::symlink_status(final_));
  if (replaces)
    swap_folders(temporary_, final_);
  else
    rename_to_new_name(temporary_, final_);
  published_ = true;
  sync_parent(final_);
  std::error_code ignored;  // the new folder stands; an old one that stays is removed by the next run
  if (replaces) fs::remove_all(temporary_, ignored);
}

fs::path set_aside(const fs::path& temporary) {
  fs::path old = temporary;
  return old += ".old";
}

void remove_folder_atomically(const fs::path& folder, const fs::path& temporary) {
  fs::remove_all(temporary);
  rename_path(folder, temporary);
  sync_parent(folder);
  fs::remove_all(temporary);
}

void link_atomically(const fs::path& from, const fs::path& to, const fs::path& temporary) {
  std::error_code absent;
  if (!fs::is_symlink(fs::symlink_status(to, absent)) && fs::equivalent(from, to, absent))
    return;  // rename() would leave both names of one file
  fs::remove(temporary);
  std::error_code failed;
  fs::create_hard_link(from, temporary, failed);
  if (failed) {
    fs::copy_file(from, temporary, failed);
    if (failed) stop_at(to, "write", failed.value());
    flush_to_disk(temporary);
  }
  rename_path(temporary, to);
  sync_parent(to);
}

void unshare_file(const fs::path& path, const fs::path& temporary) {
  fs::remove(temporary);
  std::error_code failed;
  fs::copy_file(path, temporary, failed);
  if (failed) stop_at(path, "copy", failed.value());
  flush_to_disk(temporary);
  rename_path(temporary, path);
  sync_parent(path);
}

bool has_hard_links(const fs::path& file, const fs::path& temporary) {
  std::error_code failed, ignored;
  fs::remove(temporary, ignored);
  fs::create_hard_link(file, temporary, failed);
  fs::remove(temporary, ignored);
  return !failed;
}

int64_t free_disk_bytes(const fs::path& path) {
  fs::path place = fs::absolute(path);
  while (!fs::exists(place) && place.has_relative_path()) place = place.parent_path();
  struct statvfs status {};
  if (statvfs(place.c_str(), &status) != 0) stop_at(place, "read the free disk space", errno);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

void require_disk_space(const fs::path& path, int64_t bytes, std::string_view what,
                        std::string_view otherwise) {
  const int64_t free = free_disk_bytes(path);
  if (free >= bytes) return;
  throw StoppedError(formatted("{}: {} takes {}, {} are free there. Free {} or {}.", path.string(), what,
                               format_bytes(bytes), format_bytes(free), format_bytes(bytes - free),
                               otherwise));
}

}  // namespace plimsoll
