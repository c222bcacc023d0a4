#include "files/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/regular_file.h"
#include "files/file.h"

namespace plimsoll {

AppendFile::AppendFile(std::filesystem::path path, int64_t kept_bytes) : path_(std::move(path)) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  descriptor_ = ::open(path_.c_str(), kFlags, kNewFileMode);
  if (descriptor_ < 0) stop(errno);
  struct stat status {};
  int error = fstat(descriptor_, &status) != 0 ? errno : 0;
  if (error == 0 && !S_ISREG(status.st_mode)) error = EINVAL;
  bytes_ = std::min<int64_t>(status.st_size, kept_bytes);
  if (error == 0 && status.st_size > bytes_ && ftruncate(descriptor_, bytes_) != 0) error = errno;
  if (error == 0) return;
  ::close(descriptor_);
  stop(error);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendFile::write(std::string_view piece) {
  const auto bytes = static_cast<int64_t>(piece.size());
  while (!piece.empty()) {
    const ssize_t count = ::write(descriptor_, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      if (ftruncate(descriptor_, bytes_) != 0) stop(errno);
      stop(error);
    }
    piece.remove_prefix(static_cast<size_t>(count));
  }
  bytes_ += bytes;
}

void AppendFile::sync() {
  if (fdatasync(descriptor_) != 0) stop(errno);
}

void AppendFile::stop(int error) const {
  throw StoppedError(path_.string() + ": cannot be written: " + system_message(error) + ".");
}

}  // namespace plimsoll
