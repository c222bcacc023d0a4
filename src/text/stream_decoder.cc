#include "text/stream_decoder.h"

#include <utility>

#include "text/utf8.h"

namespace plimsoll {

std::string StreamDecoder::push(int32_t id) {
  tokenizer_.append_token_bytes(id, skip_special_tokens_, pending_);
  const size_t whole = pending_.size() - unfinished_utf8_bytes(pending_);
  std::string text = replace_invalid_utf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string StreamDecoder::finish() { return replace_invalid_utf8(std::exchange(pending_, {})); }

}  // namespace plimsoll
