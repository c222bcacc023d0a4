// tokenizer.json up to a byte 0, behind it the text to encode; what does not start with '{' is
// SentencePiece's .model.
#include "tokenizer/tokenizer_fuzz.h"

#include "fuzz/target.h"

using namespace plimsoll;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kText = "The ship's \u2581 load <s>  1\u0301\xFF 123";
  const std::string_view input = text_of(data, size);
  if (!input.starts_with('{')) {
    fuzz_sentence_piece(input, kText);
    return 0;
  }
  const size_t end = input.find('\0');
  fuzz_tokenizer_json(input.substr(0, end), end == std::string_view::npos ? kText : input.substr(end + 1));
  return 0;
}
