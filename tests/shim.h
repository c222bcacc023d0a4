// Helpers that the libraries share that stand before the C library (LD_PRELOAD).
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <string>

// The function that would have been called.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// The path of the file behind a descriptor; empty if there is none.
inline std::string path_of(int descriptor) {
  std::array<char, 64> link{};
  std::array<char, 4096> path{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
  const ssize_t length = ::syscall(SYS_readlinkat, AT_FDCWD, link.data(), path.data(), path.size());
  return length > 0 ? std::string(path.data(), static_cast<size_t>(length)) : "";
}

inline int open_plainly(const char* path, int flags) {
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC));
}

// Maps a file's contents, shared with other processes that have it; null if the name is null or there is
// none.
template <class Shared>
Shared* shared_with(const char* path) {
  const int file = path == nullptr ? -1 : open_plainly(path, O_RDWR);
  if (file < 0) return nullptr;
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::syscall(SYS_close, file);
  return memory == MAP_FAILED ? nullptr : static_cast<Shared*>(memory);
}

// The argument of open() that is there only for files that may be made.
inline mode_t mode_of(int flags, va_list& arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

// The same, as `mode` in a function of that form.
#define READ_MODE(flags)                    \
  va_list rest;                             \
  va_start(rest, flags);                    \
  const mode_t mode = mode_of(flags, rest); \
  va_end(rest)
