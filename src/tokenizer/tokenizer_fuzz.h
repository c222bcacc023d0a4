// The entry of a fuzz target: a tokenizer file of any bytes, and any text.
#pragma once

#include <string_view>

namespace plimsoll {

// Loads the file, encodes the text, decodes the ids both ways. An Error on the way is fine, any other
// exception gets through. Returns whether the file was loaded.
bool fuzz_tokenizer_json(std::string_view file, std::string_view text);
bool fuzz_sentence_piece(std::string_view file, std::string_view text);

}  // namespace plimsoll
