// Metaspace, SentencePiece's way with spaces: a visible character in their place, and one before the text.
#pragma once

#include <cstdint>
#include <string>

#include "tokenizer/files/json_part.h"

namespace plimsoll {

enum class PrependScheme : uint8_t { always, first, never };

// The settings that the pre-tokeniser and the decoder of this name have in common.
struct Metaspace {
  std::string replacement;  // one character, usually U+2581
  PrependScheme prepend;
  bool split;  // a word starts at each replacement
};

// Reads today's and the older spelling (add_prefix_space).
Metaspace read_metaspace(const JsonPart& json);

}  // namespace plimsoll
