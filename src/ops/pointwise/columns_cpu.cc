#include <cstring>

#include "ops/cpu_kernel.h"
#include "ops/pointwise/columns.h"

namespace plimsoll {
namespace {

// Copies rows of `bytes` between places whose rows are as far apart as each says.
void copy_rows(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, int64_t bytes,
               int64_t rows, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * to_stride, from + row * from_stride, static_cast<size_t>(bytes));
}

}  // namespace

BoundCall bind_split_columns(const CpuBinding& b) {
  const ColumnParts columns = split_parts(b);
  std::array<std::byte*, 3> to{};
  for (size_t i = 0; i < to.size(); ++i)
    if (columns.parts[i].bytes > 0) to[i] = b.output<std::byte>(i);
  return [=, from = b.input<std::byte>(operand::split_columns::x), threads = b.settings().threads] {
    for (size_t i = 0; i < to.size(); ++i)
      if (const auto [offset, bytes] = columns.parts[i]; bytes > 0)
        copy_rows(from + offset, columns.whole, to[i], bytes, bytes, columns.rows, threads);
  };
}

BoundCall bind_join_columns(const CpuBinding& b) {
  const ColumnParts columns = join_parts(b);
  std::array<const std::byte*, 3> from{};
  for (size_t i = 0; i < from.size(); ++i)
    if (columns.parts[i].bytes > 0) from[i] = b.input<std::byte>(i);
  return [=, to = b.output<std::byte>(operand::join_columns::x), threads = b.settings().threads] {
    for (size_t i = 0; i < from.size(); ++i)
      if (const auto [offset, bytes] = columns.parts[i]; bytes > 0)
        copy_rows(from[i], bytes, to + offset, columns.whole, bytes, columns.rows, threads);
  };
}

}  // namespace plimsoll
