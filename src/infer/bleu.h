// BLEU of a corpus as sacrebleu 2 computes it by default: up to four words, tokenised as mteval-v13a does,
// smoothed by halving ("exp"), one reference each. Signature: nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

inline constexpr size_t kBleuOrders = 4;

struct BleuScore {
  double score = 0;                              // 0 to 100
  std::array<double, kBleuOrders> precisions{};  // in per cent, of one word to four
  double brevity_penalty = 1;
  int64_t answer_words = 0, reference_words = 0;
  int64_t longest_runs = 0;  // of four words, in all answers
  // Without one the score is 0 whatever the answers say.
  [[nodiscard]] bool has_score() const { return longest_runs > 0; }
};

// The words that are counted. Bytes that are no UTF-8 count as U+FFFD.
std::vector<std::string> bleu_words(std::string_view text);

class CorpusBleu {
 public:
  void add(std::string_view answer, std::string_view reference);
  [[nodiscard]] BleuScore score() const;

 private:
  std::array<int64_t, kBleuOrders> correct_{}, total_{};
  int64_t answer_words_ = 0, reference_words_ = 0;
};

}  // namespace plimsoll
