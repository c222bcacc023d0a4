// Ids that a tokenizer puts around texts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace plimsoll {

// Around two texts that belong together, such as [CLS] a [SEP] b [SEP].
struct PairAffixes {
  std::vector<int32_t> before, between, after;
  int32_t second_type = 0;  // token type of the second text and what is behind it; before it the type is 0
};

struct Affixes {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
  std::optional<PairAffixes> pair;  // none where the tokenizer has none that can be written so
};

}  // namespace plimsoll
