// Orders of buffers that are placed one by one, each where it meets room first, until one finds none below a
// given height. Whether an order works is often known after few of them. So thousands are tried: one of those
// up to the first buffer without room is changed, and what gets at least as far is kept.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "layout/instance.h"

namespace plimsoll::layout {

// Buffers that are alive together at some point; none: too many to do anything with (models of hundreds of
// layers).
using Pairs = std::vector<std::pair<int32_t, int32_t>>;
std::optional<Pairs> pairs_of(const Instance& instance);

// By buffer: those that it is alive with, or whose twins it is alive with (Twins).
class Neighbours {
 public:
  class Neighbour {
   public:
    Neighbour() = default;
    Neighbour(int32_t buffer, bool is_twin) : code_(2 * static_cast<uint32_t>(buffer) + (is_twin ? 1 : 0)) {}
    [[nodiscard]] uint32_t buffer() const { return code_ / 2; }
    [[nodiscard]] bool is_twin() const { return code_ % 2 != 0; }

   private:
    uint32_t code_ = 0;
  };
  explicit Neighbours(const Pairs& pairs, size_t buffers, const Pairs& with_twins = {});
  [[nodiscard]] std::span<const Neighbour> of(int32_t buffer) const {
    const auto b = static_cast<size_t>(buffer);
    return std::span(all_).subspan(first_[b], first_[b + 1] - first_[b]);
  }

 private:
  std::vector<size_t> first_;
  std::vector<Neighbour> all_;
};

// Buffers that stand for two, one of which lies as far above `base` as the other lies below the top. What
// repeats in turns has layouts like that, and half as many places are to be found.
struct Twins {
  std::vector<char> has_one;  // by buffer; empty: none has
  int64_t base = 0;           // none of them lies below
  int64_t sum = 0;  // of the best placement: a twin's offset is this less the other's and less its bytes
};

struct Order {
  std::vector<int32_t> buffers;  // all of them
  std::vector<char> from_above;  // by buffer: is placed as high as it goes; empty: none is
  size_t fixed = 0;              // so many of the first stay where `best` has them
};

// Changes the best of the orders until `best` is good enough or the work is done, which is returned:
// comparisons of one buffer with another, 2e8 of which take some tenths of a second. `seed`: of the numbers
// that changes are drawn by. No clock and no chance: equal problems have equal answers.
// `goal`: a height that is tried before larger ones; 0: none. The order that made `best` is returned as well,
// where there is one.
struct Climbed {
  double work = 0;
  std::optional<Order> order;
};
Climbed improve_by_climbing(const Instance& instance, const Neighbours& neighbours,
                            const std::vector<Order>& orders, double most_work, uint64_t seed,
                            std::string_view name, Placement& best, Twins* twins = nullptr, int64_t goal = 0);

}  // namespace plimsoll::layout
