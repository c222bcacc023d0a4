// WordPiece (BERT): the longest piece first, from left to right; a word with an unmatched rest is unknown.
#pragma once

#include <string>

#include "tokenizer/models/model.h"
#include "tokenizer/models/piece_trie.h"

namespace plimsoll {

class WordPiece final : public Model {
 public:
  // `prefix` marks pieces that continue a word. `longest`: more characters make a word unknown.
  WordPiece(PieceTable vocab, int32_t unk_id, const std::string& prefix, size_t longest);

  void tokenize(std::string_view word, std::vector<int32_t>& out) const override;
  [[nodiscard]] const PieceTable& vocab() const override { return vocab_; }
  [[nodiscard]] int64_t resident_bytes() const override;

 private:
  void tokenize_uncached(std::string_view word, std::vector<int32_t>& out) const;

  uint64_t serial_;  // owner of the word caches
  PieceTable vocab_;
  PieceTrie first_;  // the pieces as they are
  PieceTrie rest_;   // those that continue a word, without their prefix
  int32_t unk_id_;
  size_t longest_;
};

// Whole words only.
class WordLevel final : public Model {
 public:
  // `unk_id` -1: an unknown word is an error.
  WordLevel(PieceTable vocab, int32_t unk_id) : vocab_(std::move(vocab)), unk_id_(unk_id) {}
  // Throws UsageError for an unknown word where there is no unknown piece.
  void tokenize(std::string_view word, std::vector<int32_t>& out) const override;
  [[nodiscard]] const PieceTable& vocab() const override { return vocab_; }
  [[nodiscard]] int64_t resident_bytes() const override { return vocab_.resident_bytes(); }

 private:
  PieceTable vocab_;
  int32_t unk_id_;
};

}  // namespace plimsoll
