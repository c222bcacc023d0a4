#include "fleet/doctor/literals.h"

#include <limits>

#include "base/error.h"

namespace plimsoll::doctor {

Literals::Literals(const std::vector<std::string>& words) {
  size_t bytes = 1;
  for (const std::string& word : words) {
    check_internal(!word.empty(), "doctor: an empty literal");
    bytes += word.size();
    lengths_.push_back(word.size());
    for (const char c : word) {
      uint8_t& its = class_of_[static_cast<unsigned char>(c)];
      if (its == 0) its = static_cast<uint8_t>(classes_++);
    }
  }
  check_internal(bytes < std::numeric_limits<State>::max() && classes_ < 256, "doctor: too many literals");
  next_.assign(bytes * classes_, kStart);
  ending_.resize(bytes);
  State states = 1;
  for (size_t w = 0; w < words.size(); ++w) {
    State state = kStart;
    for (const char c : words[w]) {
      State& to = next_[state * classes_ + class_of_[static_cast<unsigned char>(c)]];
      if (to == kStart) to = states++;
      state = to;
    }
    ending_[state].push_back(static_cast<uint16_t>(w));
  }
  // Breadth first: where a state has no edge it takes that of its longest proper suffix.
  std::vector<State> suffix(states, kStart);
  std::vector<State> queue;
  for (size_t c = 0; c < classes_; ++c)
    if (next_[c] != kStart) queue.push_back(next_[c]);
  for (size_t i = 0; i < queue.size(); ++i) {
    const State state = queue[i];
    const auto& shorter = ending_[suffix[state]];
    ending_[state].insert(ending_[state].end(), shorter.begin(), shorter.end());
    for (size_t c = 0; c < classes_; ++c) {
      State& to = next_[state * classes_ + c];
      const State otherwise = next_[suffix[state] * classes_ + c];
      if (to == kStart) {
        to = otherwise;
      } else {
        suffix[to] = otherwise;
        queue.push_back(to);
      }
    }
  }
  for (const auto& ending : ending_) ends_.push_back(ending.empty() ? 0 : 1);
}

}  // namespace plimsoll::doctor
