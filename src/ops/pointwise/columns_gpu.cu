// split_columns, join_columns.
#include "ops/gpu_rows.h"
#include "ops/pointwise/columns.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kColumnThreads = 256;

// `words` of every row, where rows of `from` and of `to` are as far apart as each says. W: as wide a word as all are
// made of.
template <class W>
__global__ void __launch_bounds__(kColumnThreads)
    copy_columns(const W* from, int64_t from_stride, W* to, int64_t to_stride, int64_t words, int64_t count) {
  const int64_t at = int64_t{blockIdx.x} * kColumnThreads + threadIdx.x;
  if (at >= count) return;
  const int64_t row = at / words, column = at % words;
  to[row * to_stride + column] = from[row * from_stride + column];
}

struct CopyPart {
  const std::byte* from;
  int64_t from_stride;
  std::byte* to;
  int64_t to_stride, bytes, rows;
};

template <class W>
void launch_copy(gpu::Stream& stream, const CopyPart& part) {
  constexpr int64_t kSize = sizeof(W);
  const int64_t words = part.bytes / kSize, count = words * part.rows;
  gpu::launch(stream, {gpu::blocks_of(count, kColumnThreads)}, {kColumnThreads}, copy_columns<W>,
              reinterpret_cast<const W*>(part.from), part.from_stride / kSize, reinterpret_cast<W*>(part.to),
              part.to_stride / kSize, words, count);
}

BoundCall copies(const GpuBinding& b, const ColumnParts& columns, const std::array<CopyPart, 3>& parts) {
  // A width that divides every part's, and so every place's.
  int64_t common = 16;
  for (const ColumnPart& part : columns.parts)
    while (part.bytes % common != 0) common /= 2;
  return with_row_words(common, [&](auto word, int64_t) -> BoundCall {
    using W = decltype(word);
    return [=, &stream = b.stream()] {
      for (const CopyPart& part : parts)
        if (part.bytes > 0) launch_copy<W>(stream, part);
    };
  });
}

}  // namespace

BoundCall bind_gpu_split_columns(const GpuBinding& b) {
  const ColumnParts columns = split_parts(b);
  const std::byte* const from = b.input<std::byte>(operand::split_columns::x);
  std::array<CopyPart, 3> parts{};
  for (size_t i = 0; i < parts.size(); ++i)
    if (const auto [offset, bytes] = columns.parts[i]; bytes > 0)
      parts[i] = {from + offset, columns.whole, b.output<std::byte>(i), bytes, bytes, columns.rows};
  return copies(b, columns, parts);
}

BoundCall bind_gpu_join_columns(const GpuBinding& b) {
  const ColumnParts columns = join_parts(b);
  std::byte* const to = b.output<std::byte>(operand::join_columns::x);
  std::array<CopyPart, 3> parts{};
  for (size_t i = 0; i < parts.size(); ++i)
    if (const auto [offset, bytes] = columns.parts[i]; bytes > 0)
      parts[i] = {b.input<std::byte>(i), bytes, to + offset, columns.whole, bytes, columns.rows};
  return copies(b, columns, parts);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
