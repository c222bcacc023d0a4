#include "files/work_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/system_error.h"
#include "files/atomic.h"
#include "files/file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kLockMode = 0644;
constexpr mode_t kFolderMode = 0777;  // the process's mask takes its part
constexpr int64_t kMostLockBytes = 24;
constexpr const char* kLock = "lock";
constexpr const char* kTemporaries = "tmp";
constexpr const char* kManifest = "manifest.jsonl";
constexpr int kAttempts = 1000;

// The number that the holder wrote, or "" when it has not yet.
std::string holder_of(int descriptor) {
  std::array<char, 24> text{};
  const ssize_t count = pread(descriptor, text.data(), text.size(), 0);
  return count > 0 ? std::string(trim(std::string_view(text.data(), static_cast<size_t>(count)))) : "";
}

// The folders among `folder` and its parents that do not exist, outermost first.
std::vector<fs::path> absent_folders(const fs::path& folder) {
  std::vector<fs::path> absent;
  std::error_code failed;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, failed); path = path.parent_path()) {
    if (path.has_filename()) absent.insert(absent.begin(), path);
    if (path == path.parent_path()) break;
  }
  return absent;
}

[[noreturn]] void refuse(const fs::path& path) {
  throw UsageError(
      path.string() +
      ": was not written by plimsoll, which keeps its own things under this name. Move it away, or "
      "choose another folder.");
}

// The number of a process and a newline, or nothing yet. After a power cut zeros may stand in its place.
bool is_lock(const fs::path& path) {
  // Holders that end take it away, and others make it anew, between any two looks.
  const auto type = [&] { return fs::symlink_status(path).type(); };
  const auto seen = type();
  if (seen == fs::file_type::not_found) return true;
  if (seen != fs::file_type::regular) return false;
  try {
    const std::string text = read_start(path, kMostLockBytes);
    return text.size() < static_cast<size_t>(kMostLockBytes) &&
           text.find_first_not_of(std::string_view("0123456789\n\0", 12)) == std::string::npos;
  } catch (const UsageError&) {
    const auto left = type();
    return left == fs::file_type::not_found || left == fs::file_type::regular;
  }
}

// "rank-2.log": the lines of a process other than the one that holds the folder.
bool is_rank_log(std::string_view name) {
  constexpr std::string_view kBegin = "rank-", kEnd = ".log";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd) || name.size() <= kBegin.size() + kEnd.size())
    return false;
  const std::string_view number = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  return number.find_first_not_of("0123456789") == std::string_view::npos;
}

// Everything there must be ours, for some of it will be removed.
void require_ours(const fs::path& place) {
  const auto type = fs::symlink_status(place).type();
  if (type == fs::file_type::not_found) return;
  if (type != fs::file_type::directory) refuse(place);
  std::error_code gone;  // by a holder that ends
  for (fs::directory_iterator at(place, gone), end; !gone && at != end; at.increment(gone)) {
    const std::string name = at->path().filename().string();
    const auto kind = at->symlink_status(gone).type();
    if (gone || kind == fs::file_type::not_found) return;
    const bool ours = (name == kLock && is_lock(at->path())) ||
                      (name == kTemporaries && kind == fs::file_type::directory) ||
                      ((name == kManifest || is_rank_log(name)) && kind == fs::file_type::regular);
    if (!ours) refuse(at->path());
  }
}

int open_lock(const fs::path& place, int flags) {
  const int folder = ::open(place.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return -1;
  const int lock = ::openat(folder, kLock, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, kLockMode);
  const int error = errno;
  ::close(folder);
  errno = error;
  return lock;
}

}  // namespace

fs::path WorkFolder::inside(const fs::path& folder) { return folder / ".plimsoll"; }

fs::path WorkFolder::beside(const fs::path& out) {
  return out.parent_path() / (formatted(".{}.plimsoll", out.filename().string()));
}

// The file may be removed by another process that ends, at any moment: what counts is the lock on the file
// that has the name, so a lock on one that has lost it is taken anew.
WorkFolder::WorkFolder(const fs::path& subject, fs::path place)
    : subject_(subject), place_(std::move(place)), made_(absent_folders(place_)) {
  int attempts = 0;
  try {
    do {
      if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
      open();
      if (++attempts > kAttempts)
        throw StoppedError((place_ / kLock).string() + ": is another file whenever it was locked.");
    } while (!lock());
    unshare();
    write_holder();
    for (const fs::path& made : made_) flush_name(made);
  } catch (...) {
    if (descriptor_ >= 0)
      ::close(descriptor_);
    else
      remove_made();
    throw;
  }
}

WorkFolder::~WorkFolder() {
  remove_traces();
  ::close(descriptor_);
}

void WorkFolder::open() {
  int error = ENOENT;  // the folder may go as well, if another process made it
  for (int attempt = 0; attempt < kAttempts && error == ENOENT; ++attempt) {
    require_ours(place_);
    std::error_code failed;
    fs::create_directories(place_, failed);
    // If another process made the folder, and it was gone when it was looked at, the error is file_exists.
    const bool went = failed == std::errc::file_exists || failed == std::errc::no_such_file_or_directory;
    if (failed && !(went && attempt + 1 < kAttempts))
      throw UsageError(formatted("{}: cannot be created: {}.", subject_.string(), failed.message()));
    if (failed) continue;
    descriptor_ = open_lock(place_, O_RDWR | O_CREAT);
    if (descriptor_ >= 0) return;
    error = errno;
  }
  if (error == EACCES || error == EPERM)
    throw UsageError(formatted("{}: this user may not write there ({}: {}). Choose another folder.",
                               subject_.string(), (place_ / kLock).string(), system_message(error)));
  const std::string text =
      formatted("{}: cannot be opened: {}.", (place_ / kLock).string(), system_message(error));
  if (is_exhaustion(error) && error != EROFS) throw StoppedError(text);
  throw UsageError(text);
}

bool WorkFolder::lock() {
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      throw UsageError(formatted("{}: cannot lock: {}.", (place_ / kLock).string(), system_message(errno)));
    const std::string holder = holder_of(descriptor_);
    throw UsageError(
        formatted("{}: another command{} is writing there. Wait for it, stop it, or choose another folder.",
                  subject_.string(), holder.empty() ? "" : formatted(" (process {})", holder)));
  }
  return still_there();
}

bool WorkFolder::still_there() const {
  struct stat held {};
  struct stat named {};
  return fstat(descriptor_, &held) == 0 && ::lstat((place_ / kLock).c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

// With a link count above 1 it may be a file of the user's, or a backup's: nothing is written into it.
void WorkFolder::unshare() {
  struct stat held {};
  if (fstat(descriptor_, &held) != 0 || held.st_nlink < 2) return;
  const fs::path own = temporary(kLock);
  ::unlink(own.c_str());
  const int lock = ::open(own.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kLockMode);
  const bool taken = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 &&
                     ::rename(own.c_str(), (place_ / kLock).c_str()) == 0;
  const int error = errno;
  if (taken) {
    ::close(std::exchange(descriptor_, lock));
    return;
  }
  if (lock >= 0) ::close(lock);
  ::unlink(own.c_str());
  throw StoppedError(formatted("{}: has another name too, and cannot be replaced: {}.",
                               (place_ / kLock).string(), system_message(error)));
}

// Only for the message above: the lock itself is the kernel's.
void WorkFolder::write_holder() {
  const std::string self = std::to_string(getpid()) + "\n";
  if (ftruncate(descriptor_, 0) == 0 &&
      pwrite(descriptor_, self.data(), self.size(), 0) == static_cast<ssize_t>(self.size()))
    return;
  const int error = errno;
  remove_traces();
  throw StoppedError(formatted("{}: cannot write: {}.", (place_ / kLock).string(), system_message(error)));
}

fs::path WorkFolder::temporary(std::string_view name) const {
  const fs::path folder = place_ / kTemporaries;
  if (::mkdir(folder.c_str(), kFolderMode) != 0 && errno != EEXIST)
    throw StoppedError(formatted("{}: cannot be created: {}.", folder.string(), system_message(errno)));
  return folder / name;
}

fs::path WorkFolder::lock_file() const { return place_ / kLock; }

void WorkFolder::clear_temporaries() const { fs::remove_all(place_ / kTemporaries); }

void WorkFolder::clear_rank_logs() const {
  std::vector<fs::path> logs;
  for (const auto& entry : fs::directory_iterator(place_))
    if (is_rank_log(entry.path().filename().string())) logs.push_back(entry.path());
  for (const fs::path& log : logs) fs::remove(log);
}

void WorkFolder::remove_traces() const noexcept {
  try {
    if (!still_there()) return;
    clear_temporaries();
    for (const auto& entry : fs::directory_iterator(place_))
      if (entry.path().filename() != kLock) return;
    fs::remove(place_ / kLock);
    remove_made();
  } catch (const std::exception&) {  // it is no more than tidiness
  }
}

// A folder that is not empty belongs to others: it stays.
void WorkFolder::remove_made() const noexcept {
  if (::rmdir(place_.c_str()) != 0) return;
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder)
    if (::rmdir(folder->c_str()) != 0 && errno != ENOENT) return;
}

bool is_locked(const fs::path& folder) {
  const int descriptor = open_lock(WorkFolder::inside(folder), O_RDONLY);
  if (descriptor < 0) return false;
  const bool locked = flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return locked;
}

}  // namespace plimsoll
