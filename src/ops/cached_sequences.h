// The sequences that ops of generation continue, as their attributes say it.
#pragma once

#include "graph/graph.h"

namespace plimsoll {

// Returns how many sequences have a place in the op's cache.
inline int64_t cached_sequences(const Op& op) {
  return op.attrs.contains("sequences") ? op.attr_int("sequences") : 1;
}

// Returns true if each row continues a sequence of its own; else all rows continue the first.
inline bool continues_apart(const Op& op) { return op.attrs.contains("apart") && op.attr_int("apart") != 0; }

}  // namespace plimsoll
