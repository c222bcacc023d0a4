#include "files/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"

namespace plimsoll {
namespace {

[[noreturn]] void stop(const std::filesystem::path& path, const std::string& action, int error) {
  std::string message = formatted("{}: cannot {}: {}.", path.string(), action, system_message(error));
  if (error == ENOSPC || error == EDQUOT) message += " Free disk space and resume.";
  throw StoppedError(message);
}

}  // namespace

std::string first_line(const std::filesystem::path& file) {
  std::string line;
  std::ifstream in(file, std::ios::binary);
  std::getline(in, line);
  return line;
}

bool is_absent(const std::filesystem::path& path) {
  return std::filesystem::symlink_status(path).type() == std::filesystem::file_type::not_found;
}

File File::open(const std::filesystem::path& path) { return {path, open_regular(path)}; }

File File::create(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kNewFileMode);
  if (descriptor < 0) stop(path, "create", errno);
  return File(path, descriptor);
}

File File::of_other(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) stop(path, "open to write it", errno);
  return File(path, descriptor);
}

File File::unnamed(const std::filesystem::path& folder, const std::string& name) {
  const int descriptor = open_unnamed(folder, name);
  if (descriptor < 0) stop(folder / name, "create", errno);
  return File(folder / name, descriptor);
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

int64_t File::allocated() const {
  constexpr int64_t kBlockBytes = 512;  // of st_blocks, whatever the file system
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) stop(path_, "read its size", errno);
  return status.st_blocks * kBlockBytes;
}

void File::expect_random_reads() { posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM); }

void File::read(int64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t count = pread(descriptor_, to.data(), to.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) stop(path_, "read", errno);
    if (count == 0)
      throw DamagedError(formatted("{}: ends at byte {}, {} bytes more were expected.", path_.string(),
                                   format_count(offset), format_count(static_cast<int64_t>(to.size()))));
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

}  // namespace plimsoll
