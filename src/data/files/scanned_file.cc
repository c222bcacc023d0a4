#include "data/files/scanned_file.h"

#include <arrow/io/file.h>
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <span>
#include <system_error>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/units.h"
#include "data/files/arrow_error.h"

namespace plimsoll {
namespace {

constexpr int64_t kScanBytes = kMiB;
constexpr int64_t kBlockBytes = 64 * kKiB;  // divides kScanBytes
constexpr int64_t kPieces = 32, kPieceBytes = 4 * kKiB;
constexpr const char* kChanged =
    " changed while it was in use: what it holds is not what was read of it at first.";

}  // namespace

std::pair<RowMarks::Mark, RowMarks::Mark> RowMarks::around(int64_t row, int64_t end) const {
  const auto next = std::upper_bound(marks_.begin(), marks_.end(), row,
                                     [](int64_t r, const Mark& mark) { return r < mark.row; });
  check_internal(next != marks_.begin() && row < rows_, "a row was read that the file does not have");
  return {*std::prev(next), next == marks_.end() ? Mark{rows_, end, 0} : *next};
}

// Whole blocks are read for their checksums, one before the part and one behind it. The row is held twice
// while it is parsed.
RowCost RowMarks::cost(int64_t longest) {
  constexpr double kBytesPerSecond = 1e9;  // read, summed, and cut into lines
  constexpr int64_t kRead = kDistance + 2 * kBlockBytes;
  return {kRead + 2 * longest, static_cast<double>(kRead) / kBytesPerSecond};
}

ScannedFile::ScannedFile(const std::filesystem::path& path) : file_(File::open(path)), size_(file_.size()) {
  sums_.reserve(static_cast<size_t>((size_ + kBlockBytes - 1) / kBlockBytes));
}

void ScannedFile::scan(const std::function<bool(std::string_view piece)>& feed) {
  std::string buffer(static_cast<size_t>(std::min(kScanBytes, size_)), '\0');
  for (int64_t offset = 0; offset < size_; offset += kScanBytes) {
    const auto piece =
        std::string_view(buffer).substr(0, static_cast<size_t>(std::min(kScanBytes, size_ - offset)));
    file_.read(offset, std::as_writable_bytes(std::span<char>(buffer)).first(piece.size()));
    for (size_t start = 0; start < piece.size(); start += kBlockBytes)
      sums_.push_back(crc32c(as_bytes(piece.substr(start, kBlockBytes))));
    if (!feed(piece)) return;
  }
}

std::string ScannedFile::text(int64_t start, int64_t end) const {
  std::string text(static_cast<size_t>(end - start), '\0');
  std::string edge;
  for (int64_t block = start / kBlockBytes; block * kBlockBytes < end; ++block) {
    const int64_t from = block * kBlockBytes, to = std::min(from + kBlockBytes, size_);
    const auto number = static_cast<size_t>(block);
    if (from >= start && to <= end) {
      read_block(number,
                 std::span(text).subspan(static_cast<size_t>(from - start), static_cast<size_t>(to - from)));
      continue;
    }
    edge.resize(static_cast<size_t>(to - from));
    read_block(number, edge);
    const int64_t first = std::max(from, start), last = std::min(to, end);
    std::copy(edge.begin() + (first - from), edge.begin() + (last - from), text.begin() + (first - start));
  }
  return text;
}

void ScannedFile::read_block(size_t block, std::span<char> to) const {
  check_internal(block < sums_.size(), "a text is read before it was scanned");
  file_.read(static_cast<int64_t>(block) * kBlockBytes, std::as_writable_bytes(to));
  if (crc32c(as_bytes(std::string_view(to.data(), to.size()))) != sums_[block])
    throw DamagedError(path().string() + kChanged);
}

FileStamp::FileStamp(std::string path, arrow::io::ReadableFile& file)
    : path_(std::move(path)), file_(file), changed_at_(changed_at()), state_(state()) {}

void FileStamp::require_unchanged() {
  const int64_t now = changed_at();
  if (now == changed_at_) return;
  if (state() != state_) throw DamagedError(path_ + kChanged);
  changed_at_ = now;  // touched, renamed, or given other rights
}

FileStamp::State FileStamp::state() const {
  // Arrow's own size is that of the moment it was opened.
  State state{look().st_size, 0};
  std::vector<std::byte> piece(kBlockBytes);
  const auto add = [&](int64_t start, int64_t bytes) {
    const auto read = file_.ReadAt(start, std::min(bytes, state.size - start), piece.data());
    if (!read.ok()) {
      require_device(path_, read.status());
      throw DamagedError(path_ + ": " + reason_of(read.status()) + ".");
    }
    state.sample = crc32c(std::span(piece).first(static_cast<size_t>(*read)), state.sample);
  };
  for (int64_t i = 0; i < kPieces; ++i) add(state.size / kPieces * i, kPieceBytes);
  add(std::max(int64_t{0}, state.size - kBlockBytes), kBlockBytes);
  return state;
}

int64_t FileStamp::changed_at() const {
  const timespec time = look().st_ctim;
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

struct stat FileStamp::look() const {
  struct stat found {};
  if (fstat(file_.file_descriptor(), &found) != 0)
    throw DamagedError(path_ + ": " + std::generic_category().message(errno));
  return found;
}

}  // namespace plimsoll
