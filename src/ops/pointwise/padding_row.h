// The row of an embedding that is not trained where it is read: an attribute of `embedding` and of its
// gradient where there is one.
#pragma once

#include "graph/graph.h"

namespace plimsoll {

inline constexpr std::string_view kPaddingRow = "padding_row";

// -1: none.
inline int64_t padding_row(const Op& op) {
  return op.attrs.contains(kPaddingRow) ? op.attr_int(kPaddingRow) : -1;
}

}  // namespace plimsoll
