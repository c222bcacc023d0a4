// The unigram model of SentencePiece (T5, mT5, XLM-R): of all ways to write a word in pieces the one with the
// largest sum of scores.
#pragma once

#include <array>
#include <vector>

#include "tokenizer/models/model.h"
#include "tokenizer/models/piece_trie.h"

namespace plimsoll {

struct UnigramOptions {
  int32_t unk_id = -1;         // -1: a character no piece covers is an error
  double unk_score = 0;        // of an unknown character
  bool byte_fallback = false;  // a run of unknown characters is its bytes' pieces, where all of them exist
  bool in_float = false;       // sums in single precision, as SentencePiece, not in double, as the reference
};

class Unigram final : public Model {
 public:
  // `matched`: the pieces that text is matched with. scores[id] belongs to the id.
  Unigram(PieceTable vocab, std::vector<double> scores, std::span<const int32_t> matched,
          UnigramOptions options);

  // Throws UsageError where a character needs an unknown piece and the model has none.
  void tokenize(std::string_view word, std::vector<int32_t>& out) const override;
  [[nodiscard]] const PieceTable& vocab() const override { return vocab_; }
  [[nodiscard]] int64_t resident_bytes() const override;

 private:
  // The best way to write the text up to here.
  struct Node {
    double score;
    uint32_t begin;  // of its last piece
    int32_t id;      // of its last piece; kNone: not reached
  };
  static constexpr int32_t kNone = -2;

  template <typename Real>
  void find_best(std::string_view word, std::vector<Node>& nodes) const;
  void append_best(std::string_view word, const std::vector<Node>& nodes, std::vector<int32_t>& out) const;
  void append_unknown(std::string_view run, std::vector<int32_t>& out) const;

  uint64_t serial_;  // owner of the word caches
  PieceTable vocab_;
  std::vector<double> scores_;
  PieceTrie trie_;
  UnigramOptions options_;
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace plimsoll
