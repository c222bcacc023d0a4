// Post-processors of tokenizer.json: ids put before and after a text, and around two.
#pragma once

#include "tokenizer/files/affixes.h"
#include "tokenizer/files/json_part.h"

namespace plimsoll {

// Empty for null and for ByteLevel, which only moves offsets. Throws UsageError naming what is not supported.
Affixes make_post_processor(const JsonPart& json);

}  // namespace plimsoll
