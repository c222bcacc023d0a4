// Decodes token by token, for text shown while it is generated.
#pragma once

#include <memory>
#include <string>

#include "tokenizer/steps/decoder.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {

// The pieces given out joined are what Tokenizer::decode gives for all ids, and each piece is whole
// characters: what an unfinished one needs is held back. One exception: where tokens of single bytes
// (ByteFallback) make a character and then, without any other token between, something that is not a
// character, decode replaces the whole run, as the reference does, but a character given out before stays.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens = true)
      : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {
    restart();
  }
  StreamDecoder(const StreamDecoder&) = delete;
  StreamDecoder& operator=(const StreamDecoder&) = delete;

  // The text that `id` completes; often empty inside a character of several bytes.
  std::string push(int32_t id);
  // The end of the text: U+FFFD for an unfinished character, else mostly nothing. The next push starts anew.
  std::string finish();

 private:
  void restart();

  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::string text_;
  std::unique_ptr<TokenSink> run_;
};

}  // namespace plimsoll
