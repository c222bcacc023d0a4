// An open file that is read and written at offsets. Plain pread and pwrite, never a memory map: pages of a
// map count towards the process's memory or not as the kernel likes, and a plan cannot promise what it cannot
// count.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/regular_file.h"

namespace plimsoll {

constexpr mode_t kNewFileMode = 0644;

// Without its end; "" where there is no file.
std::string first_line(const std::filesystem::path& file);
// Nothing has the name, no link either.
bool is_absent(const std::filesystem::path& path);

class File {
 public:
  // Throws as open_regular() does (base/regular_file.h).
  static File open(const std::filesystem::path& path);
  // A new file: no link is followed and nothing that has the name is touched. Throws StoppedError.
  static File create(const std::filesystem::path& path);

  // A file that another process of the same run has made: a part of it is to be written. Throws StoppedError.
  static File of_other(const std::filesystem::path& path);

  // A new file without a name in the folder, gone once it is closed; messages call it by the folder and
  // `name`. Throws StoppedError.
  static File unnamed(const std::filesystem::path& folder, const std::string& name);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] int64_t size() const;
  // Fills `to` from `offset`; throws DamagedError when the file ends before that.
  void read(int64_t offset, std::span<std::byte> to) const;
  void write(int64_t offset, std::span<const std::byte> from);
  // Claims `bytes` of disk now, so that a full disk stops the run before anything is written, not in the
  // middle.
  void reserve(int64_t bytes);
  // Bytes of disk that it takes.
  [[nodiscard]] int64_t allocated() const;
  // Advice to the system: what is read next lies anywhere.
  void expect_random_reads();
  // Returns when the content is on the disk.
  void sync();

 private:
  File(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::filesystem::path path_;
  int descriptor_ = -1;
};

// The whole file as text. Throws as read_regular() does.
inline std::string read_text(const std::filesystem::path& path, int64_t max_bytes) {
  return read_regular(path, max_bytes);
}

// The one way bytes of text become std::byte.
inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

}  // namespace plimsoll
