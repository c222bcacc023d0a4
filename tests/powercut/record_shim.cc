// Loaded in front of the C library (LD_PRELOAD): records in one journal, in their order, what processes
// write, flush and rename below a folder, so that powercut_test.py can say what a disk would hold had the
// power gone at any of these calls.
//
// PLIMSOLL_RECORD names the journal, PLIMSOLL_RECORD_BELOW the folder, PLIMSOLL_RECORD_LOCK a file of 4
// bytes, by which processes take turns.
#include <sched.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "../shim.h"

namespace {

// One record: this, the first name, the second name or the data.
struct Head {
  char kind[8];
  int64_t inode, at, mode;
  int64_t name_bytes, data_bytes;
};

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Journal {
  std::string path = from_environment("PLIMSOLL_RECORD");
  std::string below = from_environment("PLIMSOLL_RECORD_BELOW") + "/";
  std::atomic<int>* turn =
      path.empty() ? nullptr : shared_with<std::atomic<int>>(std::getenv("PLIMSOLL_RECORD_LOCK"));
};

Journal& journal() {
  static Journal* const shared = new Journal;  // never destroyed: calls come at the end of a process too
  return *shared;
}

// One call and its record, before those of any other thread or process.
class Turn {
 public:
  Turn() {
    const std::time_t late = std::time(nullptr) + 5;  // who had the turn was killed
    while (journal().turn->exchange(1) == 1 && std::time(nullptr) < late) sched_yield();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    const int error = errno;
    journal().turn->store(0);
    errno = error;
  }
};

void record(const char* kind, const std::string& name, std::string_view data = {},
            const struct stat* of = nullptr, int64_t at = 0) {
  const int error = errno;
  Head head{};
  std::strncpy(head.kind, kind, sizeof head.kind - 1);
  if (of != nullptr) head.inode = static_cast<int64_t>(of->st_ino);
  if (of != nullptr) head.mode = static_cast<int64_t>(of->st_mode & 07777);
  head.at = at;
  head.name_bytes = static_cast<int64_t>(name.size());
  head.data_bytes = static_cast<int64_t>(data.size());
  std::string text(reinterpret_cast<const char*>(&head), sizeof head);
  text.append(name).append(data);
  const int file = open_plainly(journal().path.c_str(), O_WRONLY | O_APPEND);
  (void)!::syscall(SYS_write, file, text.data(), text.size());
  ::syscall(SYS_close, file);
  errno = error;
}

// As it stands below the folder; empty where it does not.
std::string inside(int folder, const char* path) {
  if (journal().turn == nullptr || path == nullptr) return "";
  std::string whole = path;
  if (whole.empty() || whole[0] != '/') {
    std::array<char, 4096> here{};
    const std::string base = folder == AT_FDCWD
                                 ? (getcwd(here.data(), here.size()) != nullptr ? here.data() : "")
                                 : path_of(folder);
    whole = base + "/" + whole;
  }
  while (whole.ends_with("/.")) whole.resize(whole.size() - 2);
  while (whole.ends_with("/")) whole.pop_back();
  return (whole + "/").starts_with(journal().below) ? whole : "";
}
std::string inside(const char* path) { return inside(AT_FDCWD, path); }
std::string inside(int file) { return inside(AT_FDCWD, path_of(file).c_str()); }

struct stat status_of(int file) {
  struct stat status {};
  fstat(file, &status);
  return status;
}

void record_open(const std::string& path, int file, int flags) {
  if (file < 0) return;
  const struct stat status = status_of(file);
  if (!S_ISREG(status.st_mode)) return;
  record("create", path, {}, &status);
  if ((flags & O_TRUNC) != 0) record("cut", path, {}, &status, 0);
}

// Records that bytes have come into a file by a call that does not show them.
void record_bytes(const std::string& path, int file, off64_t at, ssize_t bytes) {
  if (bytes <= 0) return;
  std::string data(static_cast<size_t>(bytes), '\0');
  const int again = open_plainly(("/proc/self/fd/" + std::to_string(file)).c_str(), O_RDONLY);
  (void)!::syscall(SYS_pread64, again, data.data(), data.size(), at);
  ::syscall(SYS_close, again);
  const struct stat status = status_of(file);
  record("write", path, data, &status, at);
}

}  // namespace

extern "C" {

#define OPEN(name)                                                     \
  int name(const char* path, int flags, ...) {                         \
    READ_MODE(flags);                                                  \
    static auto* const real = next<int(const char*, int, ...)>(#name); \
    const bool makes = (flags & (O_CREAT | O_TRUNC)) != 0;             \
    const std::string place = makes ? inside(path) : "";               \
    if (place.empty()) return real(path, flags, mode);                 \
    const Turn turn;                                                   \
    const int file = real(path, flags, mode);                          \
    record_open(place, file, flags);                                   \
    return file;                                                       \
  }
OPEN(open)
OPEN(open64)
#undef OPEN

#define OPENAT(name)                                                        \
  int name(int folder, const char* path, int flags, ...) {                  \
    READ_MODE(flags);                                                       \
    static auto* const real = next<int(int, const char*, int, ...)>(#name); \
    const bool makes = (flags & (O_CREAT | O_TRUNC)) != 0;                  \
    const std::string place = makes ? inside(folder, path) : "";            \
    if (place.empty()) return real(folder, path, flags, mode);              \
    const Turn turn;                                                        \
    const int file = real(folder, path, flags, mode);                       \
    record_open(place, file, flags);                                        \
    return file;                                                            \
  }
OPENAT(openat)
OPENAT(openat64)
#undef OPENAT

ssize_t write(int file, const void* from, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  const std::string place = inside(file);
  if (place.empty()) return real(file, from, bytes);
  const Turn turn;
  const ssize_t done = real(file, from, bytes);
  if (done <= 0) return done;
  const struct stat status = status_of(file);
  record("write", place, {static_cast<const char*>(from), static_cast<size_t>(done)}, &status,
         lseek(file, 0, SEEK_CUR) - done);
  return done;
}

ssize_t writev(int file, const iovec* parts, int count) {
  static auto* const real = next<ssize_t(int, const iovec*, int)>("writev");
  const std::string place = inside(file);
  if (place.empty()) return real(file, parts, count);
  const Turn turn;
  const ssize_t done = real(file, parts, count);
  record_bytes(place, file, lseek(file, 0, SEEK_CUR) - done, done);
  return done;
}

#define PWRITE(name, type)                                                                              \
  ssize_t name(int file, const void* from, size_t bytes, type at) {                                     \
    static auto* const real = next<ssize_t(int, const void*, size_t, type)>(#name);                     \
    const std::string place = inside(file);                                                             \
    if (place.empty()) return real(file, from, bytes, at);                                              \
    const Turn turn;                                                                                    \
    const ssize_t done = real(file, from, bytes, at);                                                   \
    const struct stat status = status_of(file);                                                         \
    if (done > 0)                                                                                       \
      record("write", place, {static_cast<const char*>(from), static_cast<size_t>(done)}, &status, at); \
    return done;                                                                                        \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
#undef PWRITE

ssize_t copy_file_range(int from, off64_t* from_at, int to, off64_t* to_at, size_t bytes, unsigned flags) {
  static auto* const real = next<ssize_t(int, off64_t*, int, off64_t*, size_t, unsigned)>("copy_file_range");
  const std::string place = inside(to);
  if (place.empty()) return real(from, from_at, to, to_at, bytes, flags);
  const Turn turn;
  const ssize_t done = real(from, from_at, to, to_at, bytes, flags);
  record_bytes(place, to, (to_at != nullptr ? *to_at : lseek(to, 0, SEEK_CUR)) - done, done);
  return done;
}

ssize_t sendfile(int to, int from, off_t* at, size_t bytes) {
  static auto* const real = next<ssize_t(int, int, off_t*, size_t)>("sendfile");
  const std::string place = inside(to);
  if (place.empty()) return real(to, from, at, bytes);
  const Turn turn;
  const ssize_t done = real(to, from, at, bytes);
  record_bytes(place, to, lseek(to, 0, SEEK_CUR) - done, done);
  return done;
}

// Calls that return 0 where they did it.
#define CALL(name, where, what, parameters, arguments)     \
  int name parameters {                                    \
    static auto* const real = next<int parameters>(#name); \
    const std::string place = inside where;                \
    if (place.empty()) return real arguments;              \
    const Turn turn;                                       \
    const int result = real arguments;                     \
    if (result == 0) {                                     \
      what;                                                \
    }                                                      \
    return result;                                         \
  }
#define OF_FILE(kind, at)                     \
  const struct stat status = status_of(file); \
  record(S_ISDIR(status.st_mode) ? "names" : kind, place, {}, &status, at)
CALL(fsync, (file), OF_FILE("flush", 0), (int file), (file))
CALL(fdatasync, (file), OF_FILE("flush", 0), (int file), (file))
CALL(ftruncate, (file), OF_FILE("cut", bytes), (int file, off_t bytes), (file, bytes))
CALL(ftruncate64, (file), OF_FILE("cut", bytes), (int file, off64_t bytes), (file, bytes))
CALL(fallocate, (file), OF_FILE("room", at + bytes), (int file, int mode, off_t at, off_t bytes),
     (file, mode, at, bytes))
CALL(fallocate64, (file), OF_FILE("room", at + bytes), (int file, int mode, off64_t at, off64_t bytes),
     (file, mode, at, bytes))
CALL(posix_fallocate, (file), OF_FILE("room", at + bytes), (int file, off_t at, off_t bytes),
     (file, at, bytes))
CALL(posix_fallocate64, (file), OF_FILE("room", at + bytes), (int file, off64_t at, off64_t bytes),
     (file, at, bytes))
#undef OF_FILE
#define MADE_FOLDER              \
  struct stat status {};         \
  lstat(place.c_str(), &status); \
  record("folder", place, {}, &status)
CALL(mkdir, (path), MADE_FOLDER, (const char* path, mode_t mode), (path, mode))
CALL(rename, (from), record("rename", place, inside(to)), (const char* from, const char* to), (from, to))
CALL(renameat2, (from_folder, from), record(flags == 2 ? "swap" : "rename", place, inside(folder, to)),
     (int from_folder, const char* from, int folder, const char* to, unsigned flags),
     (from_folder, from, folder, to, flags))
CALL(link, (from), record("link", place, inside(to)), (const char* from, const char* to), (from, to))
CALL(linkat, (from_folder, from), record("link", place, inside(folder, to)),
     (int from_folder, const char* from, int folder, const char* to, int flags),
     (from_folder, from, folder, to, flags))
CALL(unlink, (path), record("remove", place), (const char* path), (path))
CALL(unlinkat, (folder, path), record("remove", place), (int folder, const char* path, int flags),
     (folder, path, flags))
CALL(rmdir, (path), record("remove", place), (const char* path), (path))
CALL(remove, (path), record("remove", place), (const char* path), (path))
#undef CALL
#undef MADE_FOLDER

char* mkdtemp(char* name) {
  static auto* const real = next<char*(char*)>("mkdtemp");
  const bool counts = !inside(name).empty();
  char* const made = real(name);
  if (!counts || made == nullptr) return made;
  const Turn turn;
  struct stat status {};
  lstat(made, &status);
  record("folder", inside(made), {}, &status);
  return made;
}

}  // extern "C"
