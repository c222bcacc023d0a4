#include "data/encode/example.h"

#include <algorithm>

#include "base/growth.h"

namespace plimsoll {

int64_t Example::longest() const {
  int64_t longest = 0;
  for (int64_t i = 0; i < sequences(); ++i)
    longest = std::max(longest, end_of(i) - (i == 0 ? 0 : end_of(i - 1)));
  return longest;
}

void append_source(const std::vector<int32_t>& ids, Example& example) {
  example.ids.insert(example.ids.end(), ids.begin(), ids.end());
  example.labels.resize(example.ids.size(), kIgnoreLabel);
  example.ends.push_back(static_cast<int64_t>(example.ids.size()));
}

void append_target(const std::vector<int32_t>& ids, const DecoderTokens& tokens, Example& example) {
  example.ids.push_back(tokens.start);
  example.labels.push_back(kIgnoreLabel);
  for (const int32_t id : ids) {
    example.ids.push_back(id == kIgnoreLabel ? tokens.pad : id);
    example.labels.push_back(id);
    if (id != kIgnoreLabel) ++example.targets;
  }
  example.ends.push_back(static_cast<int64_t>(example.ids.size()));
}

void forget_long(Example& example) {
  forget_many(example.ids);
  forget_many(example.labels);
}

void leave_out(Example& example) {
  example.ids.clear();
  example.labels.clear();
  example.ends.clear();
}

}  // namespace plimsoll
