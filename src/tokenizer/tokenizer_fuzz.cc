#include "tokenizer/tokenizer_fuzz.h"

#include "base/error.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

void encode_and_decode(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.encode(text, true);
  (void)tokenizer.decode(ids, true);
  StreamDecoder stream(tokenizer, false);
  for (const int32_t id : ids)
    check_internal(is_valid_utf8(stream.push(id)), "the stream decoder gave out a part of a character");
  stream.finish();
}

template <typename Load>
bool fuzz(Load load, std::string_view text) {
  bool loaded = false;
  try {
    const Tokenizer tokenizer = load();
    loaded = true;
    encode_and_decode(tokenizer, text);
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
  }
  return loaded;
}

}  // namespace

bool fuzz_tokenizer_json(std::string_view file, std::string_view text) {
  return fuzz([&] { return Tokenizer::from_json(file, "fuzz.json"); }, text);
}

bool fuzz_sentence_piece(std::string_view file, std::string_view text) {
  return fuzz([&] { return Tokenizer::from_sentence_piece(file, "fuzz.model"); }, text);
}

}  // namespace plimsoll
