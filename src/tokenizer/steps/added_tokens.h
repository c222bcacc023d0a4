// Added tokens: cut out of the text before anything else looks at it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/files/json_part.h"
#include "tokenizer/files/piece_table.h"
#include "tokenizer/models/byte_trie.h"
#include "tokenizer/steps/normalizer.h"

namespace plimsoll {

struct AddedToken {
  std::string content;
  int32_t id;
  bool special;
  bool normalized;   // matched in the normalised text, by its normalised content
  bool lstrip;       // takes the white space before it along
  bool rstrip;       // and after it
  bool single_word;  // not next to a word character
  // The text that the id decodes to: the normalised content of a normalized token, as in the reference since
  // 0.23.
  std::string spelling;
};

// A token, or (id < 0) text between tokens.
struct Segment {
  int32_t id;
  std::string_view text;
};

// Finds a set of tokens, leftmost-longest, in time linear in the text however many and long they are.
class AddedTokenMatcher {
 public:
  // The token is found where its spelling stands in the text.
  void add(const AddedToken& token);
  // After the last one.
  void finish();
  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  // Appends the segments of `text`, in order; empty stretches of text are left out.
  void cut(std::string_view text, std::vector<Segment>& out) const;
  [[nodiscard]] int64_t resident_bytes() const;

 private:
  class Search;

  // The earliest place at which the next one may begin; the text's end where none does.
  [[nodiscard]] size_t next_start(std::string_view text, size_t from) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> starts_{};
  std::optional<char> only_start_;  // where all begin alike, as most special tokens do
  ByteTrie forward_;
  // The spellings read from their ends, with failure links: only where walks from every place would not be
  // linear.
  ByteTrie backward_;
  size_t longest_ = 0;
};

// All added tokens of a file.
class AddedTokens {
 public:
  AddedTokens() = default;
  // The list of tokenizer.json. Refuses (UsageError) a token whose id differs from the one the reference
  // would give it: rows of the embedding would be confused.
  AddedTokens(const std::optional<JsonPart>& list, const PieceTable& vocab, const Normalizer* normalizer);
  // Tokens whose ids and spellings are known.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  [[nodiscard]] const AddedTokenMatcher& raw() const { return raw_; }
  [[nodiscard]] const AddedTokenMatcher& normalized() const { return normalized_; }
  // Null for an id that is no added token.
  [[nodiscard]] const AddedToken* find(int32_t id) const;
  [[nodiscard]] const AddedToken* find(std::string_view content) const;
  // Largest id of an added token plus one; 0 without any.
  [[nodiscard]] int64_t end_id() const { return end_id_; }
  [[nodiscard]] int64_t resident_bytes() const;

 private:
  void add(const AddedToken& token);
  void prepare(std::vector<AddedToken> in_order);

  std::unordered_map<int32_t, AddedToken> by_id_;
  std::unordered_map<std::string, int32_t> by_content_;
  int64_t first_id_ = INT64_MAX, end_id_ = 0;
  AddedTokenMatcher raw_;
  AddedTokenMatcher normalized_;
};

}  // namespace plimsoll
