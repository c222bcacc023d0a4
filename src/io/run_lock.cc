#include "io/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "io/file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kLockMode = 0644;
constexpr int kAttempts = 100;

// The number that the holder wrote, or "" when it has not yet.
std::string holder_of(int descriptor) {
  std::array<char, 24> text{};
  const ssize_t count = pread(descriptor, text.data(), text.size(), 0);
  return count > 0 ? std::string(trim(std::string_view(text.data(), static_cast<size_t>(count)))) : "";
}

// Those of `folder` and its parents that do not exist, outermost first.
std::vector<fs::path> absent_folders(const fs::path& folder) {
  std::vector<fs::path> absent;
  std::error_code failed;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, failed); path = path.parent_path()) {
    if (path.has_filename()) absent.insert(absent.begin(), path);
    if (path == path.parent_path()) break;
  }
  return absent;
}

}  // namespace

// The file may be removed by another process that ends, at any moment: what counts is the lock on the file
// that has the name, so a lock on one that has lost it is taken anew.
RunLock::RunLock(const fs::path& folder) : folder_(folder), made_(absent_folders(folder)) {
  const fs::path path = folder / ".lock";
  try {
    do {
      if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
      open(path);
    } while (!lock(path));
    write_holder(path);
  } catch (...) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw;
  }
}

RunLock::~RunLock() {
  remove_traces();
  ::close(descriptor_);
}

void RunLock::open(const fs::path& path) {
  int error = ENOENT;  // the folder may go as well, if another process made it
  for (int attempt = 0; attempt < kAttempts && error == ENOENT; ++attempt) {
    std::error_code failed;
    fs::create_directories(folder_, failed);
    if (failed && failed != std::errc::no_such_file_or_directory)
      throw UsageError(folder_.string() + ": cannot be created: " + failed.message() + ".");
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kLockMode);
    if (descriptor_ >= 0) return;
    error = errno;
  }
  throw UsageError(path.string() + ": cannot be opened: " + system_message(error) + ".");
}

bool RunLock::lock(const fs::path& path) {
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      throw UsageError(path.string() + ": cannot lock: " + system_message(errno) + ".");
    const std::string holder = holder_of(descriptor_);
    throw UsageError(folder_.string() + ": another run" +
                     (holder.empty() ? "" : " (process " + holder + ")") +
                     " is writing there. Wait for it, stop it, or choose another folder with output.");
  }
  struct stat held {};
  struct stat named {};
  return fstat(descriptor_, &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

// Only for the message above: the lock itself is the kernel's.
void RunLock::write_holder(const fs::path& path) {
  const std::string self = std::to_string(getpid()) + "\n";
  if (ftruncate(descriptor_, 0) == 0 && pwrite(descriptor_, self.data(), self.size(), 0) >= 0) return;
  const int error = errno;
  remove_traces();
  throw StoppedError(path.string() + ": cannot write: " + system_message(error) + ".");
}

void RunLock::remove_traces() const noexcept {
  try {
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().filename() != ".lock") return;
    fs::remove(folder_ / ".lock");
    std::error_code not_empty;  // somebody else's: it stays
    for (auto folder = made_.rbegin(); folder != made_.rend() && !not_empty; ++folder)
      fs::remove(*folder, not_empty);
  } catch (const std::exception&) {  // it is no more than tidiness
  }
}

bool is_locked(const fs::path& folder) {
  const int descriptor = ::open((folder / ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool locked = flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return locked;
}

}  // namespace plimsoll
