// Byte-pair encoding: over bytes (GPT-2, Qwen, Llama 3, Mistral Nemo) or over characters (SentencePiece's:
// Llama 2, Mistral 7B, Gemma).
#pragma once

#include <array>
#include <vector>

#include "tokenizer/models/code_point_map.h"
#include "tokenizer/models/merge_table.h"
#include "tokenizer/models/model.h"
#include "tokenizer/models/word_cache.h"

namespace plimsoll {

struct BpeOptions {
  bool raw_bytes = false;      // words are bytes, pieces spell them in the alphabet of byte_level.h
  bool fuse_unk = false;       // a run of unknown characters is one unknown
  bool byte_fallback = false;  // an unknown character is its bytes' pieces, where all of them exist
  bool ignore_merges = false;  // a word that is a piece stays whole, whatever the merges are
  int32_t unk_id = -1;         // -1: unknown characters are dropped
  std::string prefix{};        // spells every symbol of a word but the first
  std::string suffix{};        // and the last one
};

class Bpe final : public Model {
 public:
  Bpe(PieceTable vocab, MergeTable merges, BpeOptions options);

  void tokenize(std::string_view word, std::vector<int32_t>& out) const override;
  void tokenize_all(std::span<const std::string_view> words, std::vector<int32_t>& out) const override;
  [[nodiscard]] const PieceTable& vocab() const override { return vocab_; }
  [[nodiscard]] int64_t resident_bytes() const override;

 private:
  void prepare_symbols();
  void prepare_cuts();
  [[nodiscard]] int32_t symbol_of(std::string_view character) const;
  void tokenize_runs(std::string_view word, std::vector<int32_t>& out) const;
  void tokenize_cached(std::string_view run, std::vector<int32_t>& out) const;
  void tokenize_in(WordCache& cache, size_t slot, std::string_view run, std::vector<int32_t>& out) const;
  void append_symbols(std::string_view run, std::vector<int32_t>& symbols) const;
  void append_affixed_symbols(std::string_view word, std::vector<int32_t>& symbols) const;
  [[nodiscard]] bool may_merge(int32_t left, int32_t right) const;

  uint64_t serial_;  // owner of the word caches
  PieceTable vocab_;
  MergeTable merges_;
  BpeOptions options_;
  CodePointMap symbols_;                 // of characters, without prefix and suffix
  std::array<int32_t, 256> byte_ids_{};  // of bytes: the whole alphabet, or what byte_fallback falls to
  // Set bits stand for pairs of neighbouring symbols that some merge may bridge (by a hash of the pair:
  // a bit too many costs time, never a wrong id). Empty where words are not cut.
  std::vector<uint64_t> bridges_;
};

}  // namespace plimsoll
