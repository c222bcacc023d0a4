// BPE over bytes: GPT-2, Qwen, Llama 3, Mistral Nemo.
#pragma once

#include <array>

#include "text/merge_table.h"
#include "text/model.h"

namespace plimsoll {

class ByteLevelBpe final : public Model {
 public:
  ByteLevelBpe(const TokenizerFile& file, const std::string& where);

  void tokenize(std::string_view word, std::vector<int32_t>& out) const override;
  [[nodiscard]] const PieceTable& vocab() const override { return vocab_; }
  [[nodiscard]] int64_t resident_bytes() const override;

 private:
  void tokenize_uncached(std::string_view word, std::vector<int32_t>& symbols) const;

  uint64_t serial_;  // owner of the word caches
  PieceTable vocab_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_{};  // -1: not in the vocabulary
  int32_t unk_id_ = -1;
  bool fuse_unk_;
  bool ignore_merges_;
};

}  // namespace plimsoll
