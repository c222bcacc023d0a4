// For tests, by LD_PRELOAD. With FAIL_CALL=threads the process may start none (RLIMIT_NPROC, which binds no
// root: it is nobody then). Otherwise system calls on files whose path holds $FAIL_PATH fail with the number
// $FAIL_ERRNO, the first $FAIL_AFTER of them excepted. $FAIL_CALL is "read", "write" or "open".
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

bool fails(const char* call, std::string_view path) {
  const char* const which = std::getenv("FAIL_CALL");
  const char* const part = std::getenv("FAIL_PATH");
  const char* const error = std::getenv("FAIL_ERRNO");
  if (which == nullptr || part == nullptr || error == nullptr) return false;
  if (std::string_view(which) != call || path.find(part) == std::string_view::npos) return false;
  static std::atomic<int> met = 0;
  const char* const after = std::getenv("FAIL_AFTER");
  if (after != nullptr && met++ < std::atoi(after)) return false;
  errno = std::atoi(error);
  return true;
}

bool fails(const char* call, int descriptor) {
  std::array<char, 64> link{};
  std::array<char, 4096> path{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link.data(), path.data(), path.size());
  return length > 0 && fails(call, std::string_view(path.data(), static_cast<size_t>(length)));
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

[[gnu::constructor]] void limit_threads() {
  const char* const which = std::getenv("FAIL_CALL");
  if (which == nullptr || std::string_view(which) != "threads") return;
  constexpr rlimit kNone{1, 1};
  constexpr uid_t kNobody = 65534;
  if (setrlimit(RLIMIT_NPROC, &kNone) != 0 || (geteuid() == 0 && setuid(kNobody) != 0)) _exit(99);
}

mode_t mode_of(int flags, va_list& arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
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
