// Files that are looked at once, to find where their rows lie, and read later: what is read later is what was
// there at first, or DamagedError says that it is not.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace arrow::io {
class ReadableFile;
}

namespace plimsoll {

// Rows of a text that are read together: its bytes [start, end).
struct LineRange {
  int64_t start = 0;
  int64_t end = 0;
  int64_t first_line = 1;
  int64_t rows = 0;
  int64_t longest = 0;
};

// A text, with a checksum (4 bytes) for each 64 KiB. What is appended to it later is not seen.
class ScannedFile {
 public:
  // Throws as File::open does.
  explicit ScannedFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }
  [[nodiscard]] int64_t size() const { return size_; }
  // Shows the file from its start, piece by piece, until `feed` returns false.
  void scan(const std::function<bool(std::string_view piece)>& feed);
  // Bytes [start, end), both within what scan() has shown.
  [[nodiscard]] std::string text(int64_t start, int64_t end) const;

 private:
  void read_block(size_t block, std::span<char> to) const;

  File file_;
  int64_t size_ = 0;
  std::vector<uint32_t> sums_;
};

// Of a file that Arrow reads: what it was when it was opened. A change is looked for by the inode's time of
// change, and is one where the size, the last 64 KiB (a footer, where a format has one) or one of 32 pieces
// of 4 KiB between the start and the end differ.
class FileStamp {
 public:
  // `file` outlives the stamp. Throws DamagedError where it cannot be read.
  FileStamp(std::string path, arrow::io::ReadableFile& file);
  // Throws DamagedError.
  void require_unchanged();

 private:
  struct State {
    int64_t size = 0;
    uint32_t sample = 0;
    friend bool operator==(const State&, const State&) = default;
  };
  [[nodiscard]] State state() const;
  [[nodiscard]] struct stat look() const;
  [[nodiscard]] int64_t changed_at() const;  // nanoseconds since 1970

  std::string path_;
  arrow::io::ReadableFile& file_;
  int64_t changed_at_ = 0;
  State state_;
};

}  // namespace plimsoll
