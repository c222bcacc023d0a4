#include "io/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/strings.h"
#include "io/file.h"

namespace plimsoll {
namespace {

constexpr mode_t kLockMode = 0644;

// The number that the holder wrote, or "" when it has not yet.
std::string holder_of(int descriptor) {
  std::array<char, 24> text{};
  const ssize_t count = pread(descriptor, text.data(), text.size(), 0);
  return count > 0 ? std::string(trim(std::string_view(text.data(), static_cast<size_t>(count)))) : "";
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw UsageError(folder.string() + ": cannot be created: " + failed.message() + ".");
  const std::filesystem::path path = folder / ".lock";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kLockMode);
  if (descriptor_ < 0) throw UsageError(path.string() + ": cannot be opened: " + system_message(errno) + ".");
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string holder = holder_of(descriptor_);
    ::close(descriptor_);
    if (error != EWOULDBLOCK)
      throw UsageError(path.string() + ": cannot lock: " + system_message(error) + ".");
    throw UsageError(folder.string() + ": another run" + (holder.empty() ? "" : " (process " + holder + ")") +
                     " is writing there. Wait for it, stop it, or choose another folder with output.");
  }
  // Only for the message above: the lock itself is the kernel's.
  const std::string self = std::to_string(getpid()) + "\n";
  if (ftruncate(descriptor_, 0) != 0 || pwrite(descriptor_, self.data(), self.size(), 0) < 0) {
    const int error = errno;
    ::close(descriptor_);
    throw StoppedError(path.string() + ": cannot write: " + system_message(error) + ".");
  }
}

RunLock::~RunLock() { ::close(descriptor_); }

bool is_locked(const std::filesystem::path& folder) {
  const int descriptor = ::open((folder / ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool locked = flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return locked;
}

}  // namespace plimsoll
