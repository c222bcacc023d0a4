// The parts of the columns that split_columns and join_columns copy, for kernels of CPUs and GPUs.
#pragma once

#include <array>

#include "ops/binding.h"
#include "ops/operands.h"

namespace plimsoll {

// A part has `bytes` from `offset` on of each group; 0: it does not exist.
struct ColumnPart {
  int64_t offset = 0, bytes = 0;
};
struct ColumnParts {
  int64_t rows = 0, whole = 0;  // groups of all rows, and the bytes of a group
  std::array<ColumnPart, 3> parts{};
};

// `tensor` returns a part's tensor by its number, or null.
template <class Tensor_of>
ColumnParts column_parts(const Op& op, Tensor_of tensor) {
  ColumnParts columns;
  for (size_t i = 0; i < columns.parts.size(); ++i) {
    const Tensor* part = tensor(i);
    if (part == nullptr) continue;
    columns.rows = part->shape[0] * op.attr_int("groups");
    columns.parts[i] = {columns.whole, part->bytes() / columns.rows};
    columns.whole += columns.parts[i].bytes;
  }
  return columns;
}
template <class Bound>
ColumnParts split_parts(const Bound& b) {
  return column_parts(b.op(), [&](size_t i) { return b.op().has_output(i) ? &b.output_tensor(i) : nullptr; });
}
template <class Bound>
ColumnParts join_parts(const Bound& b) {
  return column_parts(b.op(), [&](size_t i) { return b.op().has_input(i) ? &b.input_tensor(i) : nullptr; });
}

}  // namespace plimsoll
