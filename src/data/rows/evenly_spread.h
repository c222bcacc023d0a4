// Keeps a few of many things, spread evenly over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace plimsoll {

// Keeps every thing while there is room, then every second of them, and so on.
template <class T, int64_t kMost>
class EvenlySpread {
 public:
  explicit EvenlySpread(std::vector<T>& kept) : kept_(kept) {}

  void add(const T& thing) {
    if (next_is_kept()) kept_.push_back(thing);
  }
  // Returns true if the next thing is one of them; then it must be put behind the others.
  bool next_is_kept() {
    if (seen_++ % every_ != 0) return false;
    if (std::ssize(kept_) == kMost) {
      for (size_t i = 1; 2 * i < kept_.size(); ++i) kept_[i] = std::move(kept_[2 * i]);
      kept_.resize(kMost / 2);
      every_ *= 2;
    }
    return (seen_ - 1) % every_ == 0;
  }

 private:
  std::vector<T>& kept_;
  int64_t seen_ = 0, every_ = 1;
};

}  // namespace plimsoll
