// The merge loop of BPE: of all neighbours that merge, the pair of lowest rank, the leftmost of equals, until
// none is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tokenizer/models/merge_table.h"

namespace plimsoll {

// Merges `symbols` in place. Short words take the quadratic scan, which is faster below kScanLimit symbols;
// longer ones a heap, O(n log n).
void merge_symbols(const MergeTable& merges, std::vector<int32_t>& symbols);

// The two ways, which give equal results; exposed for tests.
inline constexpr size_t kScanLimit = 48;
void merge_by_scan(const MergeTable& merges, std::vector<int32_t>& symbols);
void merge_by_heap(const MergeTable& merges, std::vector<int32_t>& symbols);

}  // namespace plimsoll
