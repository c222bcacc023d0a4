#include "formats/gguf_checkpoint.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

constexpr int64_t kSize = sizeof(float);

// The row of the file that has a checkpoint's row: of a head's rows in turn one of each half.
int64_t dealt_row(int64_t row, int64_t head_rows) {
  const int64_t within = row % head_rows, half = head_rows / 2;
  return row - within + (within < half ? 2 * within : 2 * (within - half) + 1);
}

// Numbers of a checkpoint that lie in a row in the file too, from one on: how many, and where.
struct Piece {
  int64_t count, in_file;
};
Piece piece_of(const GgufForm& form, int64_t at, int64_t width) {
  const int64_t row = at / width, column = at % width;
  if (form.head_rows > 0) return {width - column, dealt_row(row, form.head_rows) * width + column};
  if (!form.heads.columns) return {width - column, form.heads.in_file(row) * width + column};
  return {form.heads.size - column % form.heads.size, row * width + form.heads.in_file(column)};
}

}  // namespace

GgufCheckpoint::GgufCheckpoint(const std::filesystem::path& path, const std::vector<GgufPart>& parts)
    : file_(GgufFile::open(path)) {
  for (const GgufPart& part : parts) {
    const auto found = file_.tensors().find(part.stored);
    if (found == file_.tensors().end())
      throw UsageError(formatted("{}: has no tensor '{}', which is {} of the model", path.string(),
                                 part.stored, part.name));
    Shape shape = found->second.shape;
    if (part.form.squeezed && shape.rank() == 2) shape = {shape[0], 1, shape[1]};
    entries_.push_back({part.name, DType::f32, shape, found->second.offset, shape.elements() * kSize});
    stored_.emplace(part.name, Stored{&found->second, part.form});
  }
}

void GgufCheckpoint::read(const TensorEntry& tensor, int64_t start, std::span<std::byte> to) const {
  check_internal(
      start % kSize == 0 && to.size() % kSize == 0 && static_cast<int64_t>(to.size()) <= tensor.bytes - start,
      "read beyond the tensor's bytes");
  const auto& [source, form] = stored_.find(tensor.name)->second;
  const GgufTensor& stored = *source;
  std::span<float> numbers(reinterpret_cast<float*>(to.data()), to.size() / kSize);
  const int64_t first = start / kSize, end = first + static_cast<int64_t>(numbers.size());
  if (form.head_rows == 0 && !form.heads.move()) {
    file_.read(stored, first, numbers);
  } else {
    // A bias has one number a row.
    const int64_t width = tensor.shape.rank() > 1 ? tensor.shape.last() : 1;
    for (int64_t at = first; at < end;) {
      const Piece piece = piece_of(form, at, width);
      const int64_t count = std::min(end - at, piece.count);
      file_.read(stored, piece.in_file,
                 numbers.subspan(static_cast<size_t>(at - first), static_cast<size_t>(count)));
      at += count;
    }
  }
  if (form.added != 0)
    for (float& number : numbers) number -= form.added;
  if (form.rates)
    for (float& number : numbers) number = std::log(-number);
}

}  // namespace plimsoll
