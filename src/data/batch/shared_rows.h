// Estimates from a sample of a data set's rows how much of their beginnings they share.
#pragma once

#include <cstdint>
#include <vector>

#include "data/encode/example.h"
#include "data/rows/evenly_spread.h"

namespace plimsoll {

class SharedRows {
 public:
  static constexpr int64_t kMostRows = 256;
  SharedRows() : spread_(rows_) {}
  void add(const Example& example);
  // Element i: the share for the tokens of 2^i rows together, on average over rows that no order put next to
  // each other.
  [[nodiscard]] std::vector<double> shares() const;

 private:
  using Ids = std::vector<int32_t>;
  // The beginnings of a row's sequences: sharing beyond them is not seen.
  struct Row {
    std::vector<Ids> sequences;
    int64_t tokens = 0;  // of whole sequences
  };
  [[nodiscard]] double share_of(size_t group) const;

  std::vector<Row> rows_;
  int32_t own_ = 0;  // what stands for the last token that is like no other
  EvenlySpread<Row, kMostRows> spread_;
};

}  // namespace plimsoll
