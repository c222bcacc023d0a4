// Finds places for buffers by taking them from others.
#pragma once

#include <span>
#include <vector>

#include "layout/neighbours.h"

namespace plimsoll::layout {

class Evictions {
 public:
  // Places from `base` to below `height`. Instance and neighbours must outlive this.
  Evictions(const Instance& instance, const Neighbours& neighbours, int64_t base, int64_t height);

  // Stays at that place, wherever it is.
  void put(int32_t buffer, int64_t offset);
  // Lies at that place until it is driven out, where nothing is there already: whether it does.
  bool lay(int32_t buffer, int64_t offset);

  // Finds places for those of `buffers` that have none; whether it did, within so much work. Then they stay;
  // else they have none. Work is counted in buffers that were met, 1e7 of which take some tenths of a second.
  // `seed`: of the numbers that decide between equal places. No clock and no chance: equal problems have
  // equal answers.
  bool settle(std::span<const int32_t> buffers, double most_work, uint64_t seed);

  [[nodiscard]] int64_t offset(int32_t buffer) const { return places_[static_cast<size_t>(buffer)].begin; }
  [[nodiscard]] double work() const { return work_; }

 private:
  enum class Standing : uint8_t { nowhere, lies, stays };
  // The part of a buffer that is read whenever a neighbour looks for a place: together in memory.
  struct Place {
    int64_t begin = 0, end = 0;
    int64_t weight = 0;     // with what it has gained
    int64_t placed_at = 0;  // the step
    Standing standing = Standing::nowhere;

    [[nodiscard]] bool lies_in(int64_t from, int64_t to) const {
      return standing != Standing::nowhere && begin < to && end > from;
    }
  };
  // A buffer without a place.
  struct Waiting {
    int64_t weight = 0;
    int32_t buffer = 0;
  };
  // A position where a place begins or ends to count, with its weight.
  struct Side {
    int64_t at = 0;
    int64_t weight = 0;
  };

  [[nodiscard]] int64_t bytes(int32_t buffer) const { return instance_.bytes[static_cast<size_t>(buffer)]; }
  void meet(int32_t buffer);
  int64_t place_for(int32_t buffer);
  void take(int32_t buffer, int64_t offset, std::vector<Waiting>& waiting);
  void lie(int32_t buffer, int64_t offset, Standing standing);
  size_t draw(size_t count);

  const Instance& instance_;
  const Neighbours& near_;
  int64_t base_, height_;
  std::vector<Place> places_;          // by buffer
  std::vector<int64_t> size_weights_;  // likewise
  int64_t step_ = 0;
  uint64_t draws_ = 0;
  double work_ = 0;
  std::vector<int32_t> met_;        // has a place and is alive with the buffer that looks for one
  std::vector<Side> lows_, highs_;  // of what is met
};

}  // namespace plimsoll::layout
