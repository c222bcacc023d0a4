#include "data/files/scanned_file.h"

#include <arrow/io/file.h>
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <span>
#include <system_error>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/file_ending.h"
#include "base/format.h"
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

// Whole blocks are read for their checksums, one before the part and one behind it.
RowCost RowMarks::cost(int64_t longest) {
  constexpr double kBytesPerSecond = 1e9;  // read, summed, and cut into lines
  constexpr int64_t kRead = kDistance + 2 * kBlockBytes;
  return {kRead + longest, static_cast<double>(kRead) / kBytesPerSecond};
}

ScannedFile::ScannedFile(const std::filesystem::path& path) {
  if (is_packed(path)) {
    packed_.emplace(path);
    return;
  }
  plain_ = File::open(path);
  size_ = plain_->size();
  sums_.reserve(static_cast<size_t>((size_ + kBlockBytes - 1) / kBlockBytes));
}

bool ScannedFile::scan(const std::function<bool(std::string_view piece)>& feed) {
  // One of its own: text() may be asked for by `feed`.
  std::optional<PackedText> packed;
  if (packed_) packed.emplace(path());
  const auto next_piece = [&](std::span<char> to, int64_t offset) {
    if (packed) {
      const size_t bytes = packed->read(to);
      size_ += static_cast<int64_t>(bytes);
      return bytes;
    }
    const auto bytes = static_cast<size_t>(std::min(std::ssize(to), size_ - offset));
    plain_->read(offset, std::as_writable_bytes(to.first(bytes)));
    return bytes;
  };
  std::string buffer(static_cast<size_t>(packed ? kScanBytes : std::min(kScanBytes, size_)), '\0');
  for (int64_t offset = 0;; offset += kScanBytes) {
    const auto piece = std::string_view(buffer).substr(0, next_piece(buffer, offset));
    if (piece.empty()) return true;
    for (size_t start = 0; start < piece.size(); start += kBlockBytes)
      sums_.push_back(crc32c(as_bytes(piece.substr(start, kBlockBytes))));
    if (!feed(piece)) return !packed_ && offset + std::ssize(piece) == size_;
    if (std::ssize(piece) < kScanBytes) return true;
  }
}

// A packed file is searched from its start, on average half of it. zlib unpacks some 300 MB a second.
RowCost ScannedFile::row_cost(int64_t longest) const {
  constexpr double kUnpackedPerSecond = 3e8;
  RowCost cost = RowMarks::cost(longest);
  if (packed_) cost.seconds += static_cast<double>(size_) / 2 / kUnpackedPerSecond;
  return cost;
}

int64_t ScannedFile::kept_bytes() const { return packed_ ? PackedText::kBytes + kBlockBytes : 0; }

std::string ScannedFile::text(int64_t start, int64_t end) {
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

void ScannedFile::unpack_block(int64_t block) {
  if (block == unpacked_block_) return;
  if (unpacked_block_ < 0 || block < unpacked_block_) {
    packed_->restart();
    unpacked_block_ = -1;
  }
  for (; unpacked_block_ < block; ++unpacked_block_) {
    unpacked_.resize(static_cast<size_t>(kBlockBytes));
    unpacked_.resize(packed_->read(unpacked_));
  }
}

void ScannedFile::read_block(size_t block, std::span<char> to) {
  check_internal(block < sums_.size(), "a text is read before it was scanned");
  if (packed_) {
    unpack_block(static_cast<int64_t>(block));
    if (unpacked_.size() < to.size()) throw DamagedError(path().string() + kChanged);
    std::copy_n(unpacked_.begin(), to.size(), to.begin());
  } else {
    plain_->read(static_cast<int64_t>(block) * kBlockBytes, std::as_writable_bytes(to));
  }
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
      throw DamagedError(formatted("{}: {}.", path_, reason_of(read.status())));
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
    throw DamagedError(formatted("{}: {}", path_, std::generic_category().message(errno)));
  return found;
}

}  // namespace plimsoll
