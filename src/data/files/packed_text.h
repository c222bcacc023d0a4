// A text that gzip has packed, read from its start on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/units.h"
#include "files/file.h"

namespace arrow::util {
class Decompressor;
}

namespace plimsoll {

class PackedText {
 public:
  // Throws as File::open does.
  explicit PackedText(const std::filesystem::path& path);
  PackedText(PackedText&&) noexcept;
  PackedText& operator=(PackedText&&) noexcept;
  ~PackedText();

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }
  // Fills `to` with what comes next, and returns how much that is: less only at the text's end. Throws
  // DamagedError where the file is cut off, is not one of gzip's, or does not hold what was packed.
  size_t read(std::span<char> to);
  // The next read() begins at the text's start.
  void restart();

  // Memory that one takes: zlib's state and window, and kInput.
  static constexpr int64_t kBytes = 128 * kKiB;

 private:
  static constexpr int64_t kInput = 64 * kKiB;

  bool fill();          // false: the file has no more
  bool begin_member();  // false: no other follows

  File file_;
  int64_t size_ = 0;
  std::shared_ptr<arrow::util::Decompressor> member_;
  bool within_member_ = false;
  int64_t offset_ = 0;  // of the file, behind input_
  std::string input_;
  size_t used_ = 0;  // of input_
};

}  // namespace plimsoll
