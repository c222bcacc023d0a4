// Post-processors of tokenizer.json, as far as a single text needs them: ids put before and after it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/json_part.h"

namespace plimsoll {

struct Affixes {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

// Empty for null and for ByteLevel, which only moves offsets. Throws UsageError naming what is not supported.
Affixes make_post_processor(const JsonPart& json);

}  // namespace plimsoll
