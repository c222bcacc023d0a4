// Limits on what a template may use, since templates come with models from anywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plimsoll {

struct TemplateLimits {
  size_t source_bytes = size_t{1} << 20;
  int nesting = 200;           // of blocks and expressions in the source, and of lists in lists
  int macro_depth = 100;       // calls within calls
  int evaluation_depth = 800;  // of all that recurses together: bounds the stack
  // Evaluated nodes, plus one for every 16 bytes of text and every element of a list that is made, for every
  // 64 bytes of text that a filter, test or method looks at, and for every KiB that is compared: bounds time
  // and memory (a step of text is 16 bytes).
  int64_t steps = 10'000'000;
  size_t output_bytes = size_t{64} << 20;
  size_t value_bytes = size_t{16} << 20;  // of one text; a list has a sixteenth as many elements
  int64_t range = 100'000;
};

}  // namespace plimsoll
