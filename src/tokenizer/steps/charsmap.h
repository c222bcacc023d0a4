// SentencePiece's precompiled character map: a Darts double-array trie over UTF-8 strings, and what each of
// them becomes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/steps/normalizer.h"

namespace plimsoll {

class Charsmap {
 public:
  struct Match {
    size_t bytes;  // of the text
    std::string_view replacement;
  };

  // `blob`: the trie's length in bytes (u32, little-endian), the trie, strings that end in NUL. Throws
  // DamagedError, naming `place`.
  Charsmap(std::string_view blob, const std::string& place);

  // The shortest and the longest entry that `text` starts with.
  [[nodiscard]] std::optional<Match> shortest(std::string_view text) const { return find(text, false); }
  [[nodiscard]] std::optional<Match> longest(std::string_view text) const { return find(text, true); }
  [[nodiscard]] int64_t resident_bytes() const;

 private:
  [[nodiscard]] std::optional<Match> find(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

// The normaliser "Precompiled". Like the reference it does not do quite what SentencePiece does: a grapheme
// cluster of less than 6 bytes becomes what its shortest entry becomes, and the rest of it is lost; in longer
// ones every character is looked up alone. Published ids depend on it.
class PrecompiledNormalizer final : public Normalizer {
 public:
  explicit PrecompiledNormalizer(Charsmap map);
  void apply(NormalText& text) const override;
  [[nodiscard]] int64_t resident_bytes() const override { return map_.resident_bytes(); }

 private:
  void append_cluster(std::string_view cluster, std::string& out) const;

  Charsmap map_;
  std::array<std::string, 128> ascii_;  // what each becomes alone
};

// Standard base64 with padding; empty for anything else.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace plimsoll
