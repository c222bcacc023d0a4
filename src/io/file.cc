#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace plimsoll {
namespace {

constexpr mode_t kNewFileMode = 0644;

[[noreturn]] void stop(const std::filesystem::path& path, const std::string& action, int error) {
  std::string message = path.string() + ": cannot " + action + ": " + system_message(error) + ".";
  if (error == ENOSPC || error == EDQUOT) message += " Free disk space and resume.";
  throw StoppedError(message);
}

}  // namespace

std::string system_message(int error) { return std::generic_category().message(error); }

File File::open(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw UsageError(path.string() + ": cannot be opened: " + system_message(errno) + ".");
  File file(path, descriptor);
  struct stat status {};
  if (fstat(descriptor, &status) != 0) stop(path, "read its size", errno);
  if (S_ISDIR(status.st_mode)) throw UsageError(path.string() + ": is a folder, a file is wanted.");
  return file;
}

File File::create(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, kNewFileMode);
  if (descriptor < 0) stop(path, "create", errno);
  return File(path, descriptor);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int64_t File::size() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) stop(path_, "read its size", errno);
  return status.st_size;
}

void File::read(int64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t count = pread(descriptor_, to.data(), to.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) stop(path_, "read", errno);
    if (count == 0)
      throw DamagedError(path_.string() + ": ends at byte " + format_count(offset) + ", " +
                         format_count(static_cast<int64_t>(to.size())) + " bytes more were expected.");
    offset += count;
    to = to.subspan(static_cast<size_t>(count));
  }
}

void File::write(int64_t offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t count = pwrite(descriptor_, from.data(), from.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) stop(path_, "write", errno);
    offset += count;
    from = from.subspan(static_cast<size_t>(count));
  }
}

void File::reserve(int64_t bytes) {
  if (bytes == 0 || fallocate(descriptor_, 0, 0, bytes) == 0) return;
  // A file system without reservations (EOPNOTSUPP) still reports a full disk, only later: when writing.
  if (errno != EOPNOTSUPP) stop(path_, "reserve " + format_bytes(bytes), errno);
}

void File::sync() {
  if (fsync(descriptor_) != 0) stop(path_, "flush to disk", errno);
}

std::string read_text(const std::filesystem::path& path, int64_t max_bytes) {
  const File file = File::open(path);
  const int64_t bytes = file.size();
  if (bytes > max_bytes)
    throw UsageError(path.string() + ": is " + format_bytes(bytes) + " long, at most " +
                     format_bytes(max_bytes) + " are read.");
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read(0, std::as_writable_bytes(std::span<char>(text)));
  return text;
}

}  // namespace plimsoll
