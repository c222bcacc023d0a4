// Loaded in front of the C library (LD_PRELOAD): lets one system call fail, or the process die at it.
//
// PLIMSOLL_FAULTS names a file of this struct, which its test shares with the process. Calls count where
// their path, or the file behind their descriptor, lies below `prefix`.
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "../shim.h"

namespace {

enum Mode : int64_t { count_only = 0, fail_once = 1, fail_from_then_on = 2, die = 3 };

struct Faults {
  std::atomic<int64_t> calls;  // so far, counted from 1
  int64_t at;                  // the call that fails
  int64_t mode;
  int64_t error;  // errno
  char last[64];  // the name of the call that failed
  char prefix[3872];
};
static_assert(sizeof(Faults) == 3968);

Faults* faults() {
  static Faults* const shared = shared_with<Faults>(std::getenv("PLIMSOLL_FAULTS"));
  return shared;
}

bool is_below(const char* path) {
  const size_t length = std::strlen(faults()->prefix);
  return path != nullptr && std::strncmp(path, faults()->prefix, length) == 0;
}

bool is_below(int descriptor) { return is_below(path_of(descriptor).c_str()); }

bool is_below(int descriptor, const char* path) {
  return path != nullptr &&
         (path[0] == '/' ? is_below(path) : descriptor != AT_FDCWD && is_below(descriptor));
}

// Decides if this call fails; errno is set then.
bool fails(const char* name, bool counts) {
  if (!counts) return false;
  Faults* shared = faults();
  const int64_t call = ++shared->calls;
  if (shared->mode == count_only || call < shared->at) return false;
  if (call > shared->at && shared->mode != fail_from_then_on) return false;
  std::snprintf(shared->last, sizeof shared->last, "%s", name);
  if (shared->mode == die) ::kill(::getpid(), SIGKILL);
  errno = static_cast<int>(shared->error);
  return true;
}

}  // namespace

// A disk that is full still gives, and still forgets: only what takes room fails from then on.
#define TAKES_ROOM (faults() != nullptr)
#define GIVES (faults() != nullptr && faults()->mode != fail_from_then_on)

extern "C" {

#define OPEN(name)                                                     \
  int name(const char* path, int flags, ...) {                         \
    READ_MODE(flags);                                                  \
    const bool counts = (flags & O_CREAT) != 0 ? TAKES_ROOM : GIVES;   \
    if (fails("open", counts && is_below(path))) return -1;            \
    static auto* const real = next<int(const char*, int, ...)>(#name); \
    return real(path, flags, mode);                                    \
  }
OPEN(open)
OPEN(open64)
#undef OPEN

#define OPENAT(name)                                                        \
  int name(int folder, const char* path, int flags, ...) {                  \
    READ_MODE(flags);                                                       \
    const bool counts = (flags & O_CREAT) != 0 ? TAKES_ROOM : GIVES;        \
    if (fails("openat", counts && is_below(folder, path))) return -1;       \
    static auto* const real = next<int(int, const char*, int, ...)>(#name); \
    return real(folder, path, flags, mode);                                 \
  }
OPENAT(openat)
OPENAT(openat64)
#undef OPENAT

// A write that fails may have written a part before.
ssize_t write(int file, const void* from, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  if (fails("write", TAKES_ROOM && is_below(file))) {
    const int error = errno;
    if (bytes > 1) (void)!real(file, from, bytes / 2);
    errno = error;
    return -1;
  }
  return real(file, from, bytes);
}

#define CALL(result, name, kind, where, parameters, arguments) \
  result name parameters {                                     \
    if (fails(#name, kind && is_below where)) return -1;       \
    static auto* const real = next<result parameters>(#name);  \
    return real arguments;                                     \
  }
CALL(ssize_t, pwrite, TAKES_ROOM, (file), (int file, const void* from, size_t bytes, off_t at),
     (file, from, bytes, at))
CALL(ssize_t, pwrite64, TAKES_ROOM, (file), (int file, const void* from, size_t bytes, off64_t at),
     (file, from, bytes, at))
CALL(ssize_t, read, GIVES, (file), (int file, void* to, size_t bytes), (file, to, bytes))
CALL(ssize_t, pread, GIVES, (file), (int file, void* to, size_t bytes, off_t at), (file, to, bytes, at))
CALL(ssize_t, pread64, GIVES, (file), (int file, void* to, size_t bytes, off64_t at), (file, to, bytes, at))
CALL(ssize_t, copy_file_range, TAKES_ROOM, (to),
     (int from, off64_t* from_at, int to, off64_t* to_at, size_t bytes, unsigned flags),
     (from, from_at, to, to_at, bytes, flags))
CALL(ssize_t, sendfile, TAKES_ROOM, (to), (int to, int from, off_t* at, size_t bytes), (to, from, at, bytes))
CALL(int, fsync, TAKES_ROOM, (file), (int file), (file))
CALL(int, fdatasync, TAKES_ROOM, (file), (int file), (file))
CALL(int, ftruncate, GIVES, (file), (int file, off_t bytes), (file, bytes))
CALL(int, ftruncate64, GIVES, (file), (int file, off64_t bytes), (file, bytes))
CALL(int, fallocate, TAKES_ROOM, (file), (int file, int mode, off_t at, off_t bytes), (file, mode, at, bytes))
CALL(int, fallocate64, TAKES_ROOM, (file), (int file, int mode, off64_t at, off64_t bytes),
     (file, mode, at, bytes))
CALL(int, flock, GIVES, (file), (int file, int how), (file, how))
CALL(int, mkdir, TAKES_ROOM, (path), (const char* path, mode_t mode), (path, mode))
CALL(int, rename, GIVES, (to), (const char* from, const char* to), (from, to))
CALL(int, renameat2, GIVES, (folder, to),
     (int from_folder, const char* from, int folder, const char* to, unsigned flags),
     (from_folder, from, folder, to, flags))
CALL(int, link, TAKES_ROOM, (to), (const char* from, const char* to), (from, to))
CALL(int, unlink, GIVES, (path), (const char* path), (path))
CALL(int, unlinkat, GIVES, (folder, path), (int folder, const char* path, int flags), (folder, path, flags))
CALL(int, rmdir, GIVES, (path), (const char* path), (path))
CALL(int, remove, GIVES, (path), (const char* path), (path))
CALL(int, statvfs, GIVES, (path), (const char* path, struct statvfs* to), (path, to))
CALL(int, statvfs64, GIVES, (path), (const char* path, struct statvfs64* to), (path, to))
#undef CALL

int posix_fallocate(int file, off_t at, off_t bytes) {
  if (fails("posix_fallocate", TAKES_ROOM && is_below(file))) return errno;
  static auto* const real = next<int(int, off_t, off_t)>("posix_fallocate");
  return real(file, at, bytes);
}

}  // extern "C"
