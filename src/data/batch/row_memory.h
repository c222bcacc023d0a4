// The memory that a row takes on its way to tokens: bounded by its size, or, of a long row that is there to be read, counted.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/units.h"
#include "data/batch/row_reader.h"

namespace plimsoll {

// Bytes of memory for each byte of a long row's size on its way to tokens, all at once: its JSON parsed, the
// cells' copy, the normalised text, a word's places in a search for its tokens, and ids and labels. Measured:
// 3 for words of a few letters, up to 38 where a row is one word (data/batch/row_memory_test.cc).
inline constexpr int64_t kRowTimes = 40;
// A row of this size stays within what every program takes.
inline constexpr int64_t kOrdinaryRowBytes = 64 * kKiB;

// A bound for any row of such a size (data/files/cell.h), beyond an ordinary one.
constexpr int64_t most_row_memory(int64_t size) {
  return kRowTimes * std::max<int64_t>(0, size - kOrdinaryRowBytes);
}

// Encodes a row as encode_row_of() does, and returns what memory that takes beyond an ordinary row. A long row is encoded in a
// thread of its own, which holds nothing of other rows, and its memory is counted: the same in each process.
int64_t encode_counted(const Block& unit, int64_t row, const RowVisit& visit, RowErrors on_error,
                       const ExampleEncoder& encoder, Row& cells, Example& example);

}  // namespace plimsoll
