// Decoders of tokenizer.json: tokens go in one by one, text comes out as soon as it is certain.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/files/json_part.h"
#include "tokenizer/steps/metaspace.h"
#include "tokenizer/steps/pattern.h"

namespace plimsoll {

// The receiver of tokens: the next step of a decoder, or the text.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void token(std::string_view token) = 0;
  // No token follows.
  virtual void finish() = 0;
};

// The rules of decoding; one run of it is a TokenSink.
class Decoder {
 public:
  // Null: tokens are joined by spaces, as in the reference. Throws UsageError naming what is not supported.
  explicit Decoder(const JsonPart& json);
  // SentencePiece's: the mark becomes a space, byte pieces become characters, one leading space is dropped
  // with `strip`.
  static Decoder sentence_piece(bool strip);

  // A run that appends whole characters to `out`. Bytes that are no UTF-8 become U+FFFD: each byte of a run
  // of byte pieces that has any (the reference's ByteFallback), or each broken character (ByteLevel).
  // `eager`: a character of byte pieces comes out when it is complete, not when its run is; it stays where
  // the run breaks later.
  // The decoder must outlive the run.
  [[nodiscard]] std::unique_ptr<TokenSink> start(std::string& out, bool eager) const;
  // Appends what one token is inside of a text, byte for byte: a part of a character stays one. Where it
  // depends on neighbouring tokens (spaces that are dropped or put between), it is as after another word.
  void append_bytes(std::string_view token, std::string& out) const;
  // The number of those bytes where `text` begins with them; 0 where it does not, or only append_bytes can
  // tell.
  [[nodiscard]] size_t bytes_in(std::string_view token, std::string_view text) const;
  // Returns true if a token is what its characters stand for as bytes, and no more.
  [[nodiscard]] bool is_byte_level() const {
    return steps_.size() == 1 && steps_[0].kind == Kind::byte_level;
  }
  [[nodiscard]] int64_t resident_bytes() const;

 private:
  enum class Kind : uint8_t {
    byte_level,
    byte_fallback,
    fuse,
    metaspace,
    word_piece,
    replace,
    strip,
    bpe_suffix,
    join_by_spaces
  };
  struct Step {
    Kind kind;
    std::string text{};       // of metaspace, word_piece, strip and bpe_suffix; what replace puts
    bool drop_first = false;  // metaspace: marks of the first token vanish
    bool clean_up = false;    // word_piece
    size_t start = 0;         // strip: at most so many at the start
    size_t stop = 0;          // and at the end
    std::shared_ptr<const Pattern> pattern{};  // replace
  };
  Decoder() = default;
  void append(const JsonPart& json);
  static Step read_step(const JsonPart& json, const std::string& type);
  [[nodiscard]] bool joins_whole(size_t step) const;

  std::vector<Step> steps_;
};

}  // namespace plimsoll
