#include "tokenizer/stream_decoder.h"

#include <utility>

namespace plimsoll {

void StreamDecoder::restart() { run_ = tokenizer_.start_decoding(text_, true); }

std::string StreamDecoder::push(int32_t id) {
  tokenizer_.decode_token(id, skip_special_tokens_, *run_);
  return std::exchange(text_, {});
}

std::string StreamDecoder::finish() {
  run_->finish();
  restart();
  return std::exchange(text_, {});
}

}  // namespace plimsoll
