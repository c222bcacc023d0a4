#include "data/encode/sequences.h"

#include <algorithm>

#include "data/encode/ids.h"

namespace plimsoll {
namespace {

// A text that is scored at its end has one, also where it was cut.
void end_scored(const SequenceRules& rules, Example& one) {
  if (!rules.scored_end || one.ids.back() == *rules.scored_end) return;
  if (std::ssize(one.ids) < rules.cut.max_length)
    one.ids.push_back(*rules.scored_end);
  else
    one.ids.back() = *rules.scored_end;
}

}  // namespace

bool append_sequence(const SequenceRules& rules, Example one, const Where& where, Example& example) {
  require_known_ids(one.ids, rules.vocab_size, where);
  one.whole_length = std::max(one.whole_length, static_cast<int64_t>(one.ids.size()));
  cut_sequence(rules.cut, where, one);
  const bool cut = one.truncated();
  drop_padding(rules.padding, one.ids);
  example.whole_length = std::max(example.whole_length, cut ? one.whole_length : std::ssize(one.ids));
  if (one.ids.empty()) return false;
  end_scored(rules, one);
  const bool labelled = rules.labelled && one.labels.size() == one.ids.size();
  example.ids.insert(example.ids.end(), one.ids.begin(), one.ids.end());
  if (labelled) example.labels.insert(example.labels.end(), one.labels.begin(), one.labels.end());
  example.labels.resize(example.ids.size(), kIgnoreLabel);
  example.ends.push_back(static_cast<int64_t>(example.ids.size()));
  return true;
}

void expect_nothing(int64_t values, Example& example) {
  example.values.assign(static_cast<size_t>(values), 0.0F);
  example.targets = 1;
}

}  // namespace plimsoll
