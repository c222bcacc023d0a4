#include "base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/system_error.h"
#include "base/units.h"

namespace plimsoll {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  [[nodiscard]] int number() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

[[noreturn]] void stop(const std::filesystem::path& path, const char* action, int error) {
  throw StoppedError(formatted("{}: cannot {}: {}.", path.string(), action, system_message(error)));
}

struct stat status_of(const std::filesystem::path& path, int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) stop(path, "read its size", errno);
  return status;
}

std::string read_up_to(const std::filesystem::path& path, int descriptor, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t count = ::read(descriptor, text.data() + filled, text.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) stop(path, "read", errno);
    if (count == 0) break;  // it became shorter during the read
    filled += static_cast<size_t>(count);
  }
  text.resize(filled);
  return text;
}

}  // namespace

std::string system_message(int error) { return std::generic_category().message(error); }

int open_regular(const std::filesystem::path& path) {
  // Without O_NONBLOCK a FIFO would wait for a writer before it can be looked at.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.number() < 0) {
    const int error = errno;
    if (is_exhaustion(error)) stop(path, "open", error);
    if (error == ENXIO) throw UsageError(path.string() + ": is no regular file.");  // a socket
    throw UsageError(formatted("{}: cannot be opened: {}.", path.string(), system_message(error)));
  }
  const struct stat status = status_of(path, file.number());
  if (S_ISDIR(status.st_mode)) throw UsageError(path.string() + ": is a folder, a file is wanted.");
  if (!S_ISREG(status.st_mode))
    throw UsageError(formatted("{}: is no regular file{}.", path.string(),
                               S_ISFIFO(status.st_mode)   ? " (a FIFO)"
                               : S_ISSOCK(status.st_mode) ? ""
                                                          : " (a device)"));
  return file.release();
}

void require_regular(const std::filesystem::path& path) { const Descriptor file(open_regular(path)); }

int open_unnamed(const std::filesystem::path& folder, const std::string& name) {
  const int unnamed = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (unnamed >= 0) return unnamed;
  std::string path = (folder / (name + ".XXXXXX")).string();
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

std::string read_start(const std::filesystem::path& path, int64_t most) {
  const Descriptor file(open_regular(path));
  return read_up_to(path, file.number(), std::min<int64_t>(most, status_of(path, file.number()).st_size));
}

std::string read_end(const std::filesystem::path& path, int64_t most) {
  const Descriptor file(open_regular(path));
  const int64_t bytes = status_of(path, file.number()).st_size, wanted = std::min(most, bytes);
  if (lseek(file.number(), bytes - wanted, SEEK_SET) < 0) stop(path, "read", errno);
  return read_up_to(path, file.number(), wanted);
}

std::string read_regular(const std::filesystem::path& path, int64_t most) {
  const Descriptor file(open_regular(path));
  const int64_t bytes = status_of(path, file.number()).st_size;
  if (bytes > most)
    throw UsageError(formatted("{}: is {} long, at most {} are read.", path.string(), format_bytes(bytes),
                               format_bytes(most)));
  return read_up_to(path, file.number(), bytes);
}

}  // namespace plimsoll
