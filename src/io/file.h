// One open file, read and written at offsets. Plain pread and pwrite, never a memory map: pages of a map
// count towards the process's memory or not as the kernel likes, and a plan cannot promise what it cannot
// count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace plimsoll {

class File {
 public:
  // Throws UsageError when there is no such file or it may not be read.
  static File open(const std::filesystem::path& path);
  // Creates or empties. Throws StoppedError when that fails.
  static File create(const std::filesystem::path& path);

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
  // Returns when the content is on the disk.
  void sync();

 private:
  File(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::filesystem::path path_;
  int descriptor_ = -1;
};

// The whole file as text. Throws UsageError when it is larger than `max_bytes`.
std::string read_text(const std::filesystem::path& path, int64_t max_bytes);

// "No space left on device", ...: the system's text for an errno value.
std::string system_message(int error);

// The one way bytes of text become std::byte.
inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

}  // namespace plimsoll
