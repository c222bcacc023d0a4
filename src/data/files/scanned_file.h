// Files that are scanned once, to find where their rows lie, and read later: the later read returns what was
// there at first, or throws DamagedError.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "data/files/data_file.h"
#include "data/files/packed_text.h"
#include "files/file.h"

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

// The places of the rows of a text, for each 16 KiB of it.
class RowMarks {
 public:
  // The file's next row.
  void add(int64_t start, int64_t line) {
    if (marks_.empty() || start - marks_.back().start >= kDistance) marks_.push_back({rows_, start, line});
    ++rows_;
  }
  struct Mark {
    int64_t row = 0;  // of the file
    int64_t start = 0;
    int64_t line = 0;
  };
  // The row's mark and the next one; of the last, the file's rows and `end`.
  [[nodiscard]] std::pair<Mark, Mark> around(int64_t row, int64_t end) const;
  // The cost of reading what lies between two marks, where the longest row has so many bytes.
  [[nodiscard]] static RowCost cost(int64_t longest);

 private:
  static constexpr int64_t kDistance = 16 * kKiB;
  std::vector<Mark> marks_;
  int64_t rows_ = 0;
};

// A text, with a checksum (4 bytes) for each 64 KiB. What is appended to it later is not seen. Of a packed
// one a part is read by unpacking all before it; parts that follow one another cost one pass.
class ScannedFile {
 public:
  // Throws as File::open does.
  explicit ScannedFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const {
    return packed_ ? packed_->path() : plain_->path();
  }
  [[nodiscard]] bool packed() const { return packed_.has_value(); }
  // Bytes of the text; for a packed one, of what scan() has shown of it.
  [[nodiscard]] int64_t size() const { return size_; }
  // Shows the text from its start, piece by piece, until `feed` returns false. Returns whether it was shown
  // to its end.
  bool scan(const std::function<bool(std::string_view piece)>& feed);
  // Bytes [start, end), both within what scan() has shown.
  [[nodiscard]] std::string text(int64_t start, int64_t end);
  // The cost of reading what lies between two marks, where the longest row has so many bytes.
  [[nodiscard]] RowCost row_cost(int64_t longest) const;
  // Memory that it keeps in addition to that of marks and checksums.
  [[nodiscard]] int64_t kept_bytes() const;

 private:
  void read_block(size_t block, std::span<char> to);
  void unpack_block(int64_t block);

  std::optional<File> plain_;
  std::optional<PackedText> packed_;
  int64_t size_ = 0;
  std::vector<uint32_t> sums_;
  // The block of a packed text that was unpacked last, which the next part may begin in.
  std::string unpacked_;
  int64_t unpacked_block_ = -1;
};

// The state of a file that Arrow reads, when it was opened. A change is looked for by the inode's time of
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
