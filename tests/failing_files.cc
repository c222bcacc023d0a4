// For tests, by LD_PRELOAD, told by the environment where fault_shim.cc draws by a count of all calls. With
// FAIL_CALL=rights the process is nobody, where it would be root; with FAIL_CALL=threads it is so too, and
// may start none (RLIMIT_NPROC, which binds no root). Otherwise system calls on files whose path holds
// $FAIL_PATH fail with the number $FAIL_ERRNO, the first $FAIL_AFTER of them excepted; where that is "stop",
// the process stops (SIGSTOP) once, and then nothing fails. $FAIL_CALL is "read", "write", "open", "make" (of a file in
// memory) or "claim" (of its pages, or a disk's).
#include <grp.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "shim.h"

namespace {

bool fails(const char* call, std::string_view path) {
  const char* const which = std::getenv("FAIL_CALL");
  const char* const part = std::getenv("FAIL_PATH");
  const char* const error = std::getenv("FAIL_ERRNO");
  if (which == nullptr || part == nullptr || error == nullptr) return false;
  if (std::string_view(which) != call || path.find(part) == std::string_view::npos) return false;
  static std::atomic<int> met = 0;
  const char* const after = std::getenv("FAIL_AFTER");
  const int passed = after == nullptr ? 0 : std::atoi(after), number = met++;
  if (number < passed) return false;
  if (std::string_view(error) == "stop") {
    if (number == passed) raise(SIGSTOP);
    return false;
  }
  errno = std::atoi(error);
  return true;
}

bool fails(const char* call, int descriptor) { return fails(call, std::string_view(path_of(descriptor))); }

[[gnu::constructor]] void take_rights() {
  const char* const which = std::getenv("FAIL_CALL");
  if (which == nullptr) return;
  const bool threads = std::string_view(which) == "threads";
  if (!threads && std::string_view(which) != "rights") return;
  constexpr rlimit kNone{1, 1};
  constexpr uid_t kNobody = 65534;
  if (threads && setrlimit(RLIMIT_NPROC, &kNone) != 0) _exit(99);
  if (geteuid() != 0) return;
  if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(99);
}

}  // namespace

extern "C" {

ssize_t read(int descriptor, void* to, size_t size) {
  static auto* const real = next<ssize_t(int, void*, size_t)>("read");
  return fails("read", descriptor) ? -1 : real(descriptor, to, size);
}

ssize_t write(int descriptor, const void* from, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  return fails("write", descriptor) ? -1 : real(descriptor, from, size);
}

ssize_t pread(int descriptor, void* to, size_t size, off_t offset) {
  static auto* const real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  return fails("read", descriptor) ? -1 : real(descriptor, to, size, offset);
}

ssize_t pread64(int descriptor, void* to, size_t size, off64_t offset) {
  static auto* const real = next<ssize_t(int, void*, size_t, off64_t)>("pread64");
  return fails("read", descriptor) ? -1 : real(descriptor, to, size, offset);
}

int memfd_create(const char* name, unsigned flags) noexcept {
  static auto* const real = next<int(const char*, unsigned)>("memfd_create");
  return fails("make", name) ? -1 : real(name, flags);
}

int fallocate(int descriptor, int mode, off_t offset, off_t size) {
  static auto* const real = next<int(int, int, off_t, off_t)>("fallocate");
  return fails("claim", descriptor) ? -1 : real(descriptor, mode, offset, size);
}

int open(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return fails("open", path) ? -1 : real(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open64");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return fails("open", path) ? -1 : real(path, flags, mode);
}

}  // extern "C"
