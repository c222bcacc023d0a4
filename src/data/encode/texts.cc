#include "data/encode/texts.h"

#include <algorithm>

namespace plimsoll {

void encode_text(const TextRules& rules, bool train_on_prompt, std::string_view prompt,
                 std::string_view response, Example& example) {
  example.ids = rules.begin;
  if (!prompt.empty()) rules.tokenize(prompt, example.ids);
  if (train_on_prompt)
    example.labels = example.ids;
  else
    example.labels.assign(example.ids.size(), kIgnoreLabel);
  const auto prompt_tokens = static_cast<std::ptrdiff_t>(example.ids.size());
  if (!response.empty()) rules.tokenize(response, example.ids);
  if (example.ids.empty() || example.ids.back() != rules.eos) example.ids.push_back(rules.eos);
  example.labels.insert(example.labels.end(), example.ids.begin() + prompt_tokens, example.ids.end());
}

void encode_joined(const TextRules& rules, bool train_on_prompt, const std::string& prompt,
                   const std::string& response, Example& example) {
  std::vector<int32_t> alone = rules.begin;
  rules.tokenize(prompt, alone);
  example.ids = rules.begin;
  rules.tokenize(prompt + response, example.ids);
  if (example.ids.empty() || example.ids.back() != rules.eos) example.ids.push_back(rules.eos);
  const auto parting =
      std::mismatch(alone.begin(), alone.end(), example.ids.begin(), example.ids.end()).second;
  example.labels = example.ids;
  if (!train_on_prompt)
    std::fill(example.labels.begin(), example.labels.begin() + (parting - example.ids.begin()), kIgnoreLabel);
}

void finish_tokens(const CutRule& cut, const Where& where, Example& example) {
  example.whole_length = std::max(example.whole_length, static_cast<int64_t>(example.ids.size()));
  cut_sequence(cut, where, example);
  const auto ignored = std::count(example.labels.begin(), example.labels.end(), kIgnoreLabel);
  const bool first_counts = !example.labels.empty() && example.labels[0] != kIgnoreLabel;
  example.targets = static_cast<int64_t>(example.labels.size()) - ignored - (first_counts ? 1 : 0);
}

}  // namespace plimsoll
