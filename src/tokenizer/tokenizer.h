// Text to token ids and back, as the file tokenizer.json says and the reference (Hugging Face `tokenizers`)
// does it.
//
// Every component that a file may name and that is not run here is refused by its name (docs/explanation/tokenizers.md
// has the list). Encoding: cut out added tokens, normalise each piece, cut out the normalised added tokens,
// split into words, turn each word into ids, add the post-processor's ids.
//
// A Tokenizer is a cheap handle on immutable tables: copy it freely, use it from any number of threads. Every
// thread that encodes holds a word cache of 1 MiB for the tokenizer it used last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/files/affixes.h"

namespace plimsoll {

class TokenSink;

class Tokenizer {
 public:
  // A tokenizer.json; named *.model, a SentencePiece model; a vocabulary
  // (tokenizer/files/vocabulary_files.h). Throws UsageError for what is not supported, DamagedError for a
  // file that contradicts itself.
  static Tokenizer from_file(const std::filesystem::path& file);
  // `where` names the text in errors.
  static Tokenizer from_json(std::string_view json, std::string_view where);
  static Tokenizer from_sentence_piece(std::string_view model, std::string_view where);
  // The tokenizer file of a model folder: tokenizer.json, else a SentencePiece model, else a vocabulary.
  static std::optional<std::filesystem::path> find_file(const std::filesystem::path& folder);

  // Bytes that are no UTF-8 count as U+FFFD, as with Python's errors="replace". Time is linear in the text
  // but for words without a break: n log n in their length. Throws UsageError for a text above 64 MiB, and
  // where the model has no unknown piece but needs one.
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;
  // Appends to `out`.
  void encode_into(std::string_view text, bool add_special_tokens, std::vector<int32_t>& out) const;

  // The tokens that the post-processor puts around texts.
  [[nodiscard]] const Affixes& affixes() const;

  // Ids without a piece are skipped; bytes that are no UTF-8 become U+FFFD.
  [[nodiscard]] std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;
  // A run of the decoder that appends whole characters to `out`; the tokenizer must outlive it. StreamDecoder
  // is the convenient way to use one.
  [[nodiscard]] std::unique_ptr<TokenSink> start_decoding(std::string& out, bool eager) const;
  // Hands one token to a run; an unknown id is nothing.
  void decode_token(int32_t id, bool skip_special_tokens, TokenSink& run) const;

  // Appends the bytes that a token stands for inside of a text, also where they are only a part of a
  // character; nothing for an unknown id.
  void append_token_bytes(int32_t id, bool skip_special_tokens, std::string& out) const;
  // The number of those bytes where `text` begins with them; 0 where it does not, or only append_token_bytes
  // can tell.
  [[nodiscard]] size_t token_bytes_in(int32_t id, std::string_view text) const;
  // The places in `text` at which each of the ids that encode() made of it begins, and the end of the last.
  // Empty where lengths of tokens alone do not determine them.
  [[nodiscard]] std::vector<size_t> starts_by_lengths(std::string_view text,
                                                      std::span<const int32_t> ids) const;

  // Largest id plus one, added tokens included: the rows an embedding needs at least.
  [[nodiscard]] int64_t vocab_size() const;
  [[nodiscard]] std::optional<int32_t> token_id(std::string_view token) const;
  // The token as the file spells it ("Ġthe"); empty for an id without one.
  [[nodiscard]] std::string token(int32_t id) const;
  [[nodiscard]] bool is_special(int32_t id) const;

  // The parts of the file that are ignored on purpose (truncation, padding, ...), one sentence each.
  [[nodiscard]] const std::vector<std::string>& notes() const;

  // Heap held, one thread's word cache included.
  [[nodiscard]] int64_t resident_bytes() const;
  // A bound of resident_bytes for a file, from its size alone. While loading, about three times the file's
  // size is needed in addition. Throws UsageError where there is no such file.
  static int64_t estimated_bytes(const std::filesystem::path& file);

  struct Parts;

 private:
  explicit Tokenizer(std::shared_ptr<const Parts> parts);
  void encode_text(std::string_view text, std::vector<int32_t>& out) const;

  std::shared_ptr<const Parts> parts_;
};

}  // namespace plimsoll
