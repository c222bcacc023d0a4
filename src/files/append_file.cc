#include "files/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/regular_file.h"
#include "files/file.h"

namespace plimsoll {
namespace {

constexpr int kAppend = O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_CLOEXEC;

// 0, or errno.
int cut_to(int descriptor, int64_t bytes) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return errno;
  return status.st_size > bytes && ftruncate(descriptor, bytes) != 0 ? errno : 0;
}

bool is_regular(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

AppendFile::AppendFile(std::filesystem::path path, int64_t kept_bytes) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), kAppend | O_NOFOLLOW | O_NONBLOCK, kNewFileMode);
  if (descriptor_ < 0) stop(errno);
  const int error = is_regular(descriptor_) ? cut_to(descriptor_, kept_bytes) : EINVAL;
  if (error == 0) return;
  ::close(descriptor_);
  stop(error);
}

AppendFile AppendFile::of_user(std::filesystem::path path, int64_t kept_bytes) {
  AppendFile file(std::move(path));
  file.descriptor_ = ::open(file.path_.c_str(), kAppend, 0600);
  if (file.descriptor_ < 0)
    throw UsageError(formatted("{}: cannot be written: {}.", file.path_.string(), system_message(errno)));
  if (const int error = is_regular(file.descriptor_) ? cut_to(file.descriptor_, kept_bytes) : 0; error != 0)
    file.stop(error);
  return file;
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

// A write that fails may have left a part of the piece: behind it, the next one would be no line of its own.
void AppendFile::write(std::string_view piece) {
  struct stat before {};
  const bool can_be_cut = fstat(descriptor_, &before) == 0 && S_ISREG(before.st_mode);
  while (!piece.empty()) {
    const ssize_t count = ::write(descriptor_, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      const int error_of_cut = can_be_cut ? cut_to(descriptor_, before.st_size) : 0;
      stop(error_of_cut != 0 ? error_of_cut : error);
    }
    piece.remove_prefix(static_cast<size_t>(count));
  }
}

void AppendFile::sync() {
  if (fdatasync(descriptor_) != 0) stop(errno);
}

void AppendFile::stop(int error) const {
  throw StoppedError(formatted("{}: cannot be written: {}.", path_.string(), system_message(error)));
}

}  // namespace plimsoll
