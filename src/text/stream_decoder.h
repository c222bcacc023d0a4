// Decoding token by token, for text shown while it is generated.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace plimsoll {

// Whatever the ids, the pieces given out joined are what Tokenizer::decode gives for all of them, and each
// piece is whole characters: at most three bytes of an unfinished one are held back.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens = true)
      : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

  // The text that `id` completes; often empty inside a character of several bytes.
  std::string push(int32_t id);
  // The end of the text: U+FFFD for an unfinished character, else nothing.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;
};

}  // namespace plimsoll
