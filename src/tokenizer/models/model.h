// The interface of tokenizer models: they turn a word into ids.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/files/piece_table.h"
#include "tokenizer/files/tokenizer_file.h"

namespace plimsoll {

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of `word` (not empty, valid UTF-8).
  virtual void tokenize(std::string_view word, std::vector<int32_t>& out) const = 0;
  // The same of each word in turn.
  virtual void tokenize_all(std::span<const std::string_view> words, std::vector<int32_t>& out) const {
    for (const std::string_view word : words) tokenize(word, out);
  }
  [[nodiscard]] virtual const PieceTable& vocab() const = 0;
  // Word caches not counted.
  [[nodiscard]] virtual int64_t resident_bytes() const = 0;
};

// `raw_bytes`: words are bytes (the pre-tokeniser is ByteLevel), for a model that reads_raw_bytes. Throws
// UsageError naming what is not supported.
std::unique_ptr<Model> make_model(const TokenizerFile& file, bool raw_bytes);
bool reads_raw_bytes(const TokenizerFile& file);

// The kinds, each in its own file.
std::unique_ptr<Model> make_bpe(const TokenizerFile& file, bool raw_bytes);
std::unique_ptr<Model> make_unigram(const TokenizerFile& file);
std::unique_ptr<Model> make_word_piece(const TokenizerFile& file);
std::unique_ptr<Model> make_word_level(const TokenizerFile& file);

// "<0x0A>" -> 10, -1 for a piece that names no byte.
int byte_of_piece(std::string_view piece);
// The ids of "<0x00>" to "<0xFF>", -1 for a byte without a piece.
std::array<int32_t, 256> byte_piece_ids(const PieceTable& vocab);
// The id of the piece that `key` of the model names; -1 where it names none.
int32_t named_piece(const JsonPart& model, const char* key, const PieceTable& vocab);

}  // namespace plimsoll
