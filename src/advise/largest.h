// The largest length of rows, or micro-batch, that fits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "advise/what_if.h"

namespace plimsoll {

// The plan with the least memory at a value of what is made large: where it fits, some plan does.
struct TriedValue {
  int64_t value = 0;
  int64_t bytes = 0;  // of what the budget bounds
  bool fits = false;
};
// The last value from 1 to `most` that fits, as bytes grow with it; 0: not even 1 does.
int64_t largest_that_fits(int64_t most, const std::optional<int64_t>& limit,
                          const std::function<TriedValue(int64_t)>& try_value);

// A key of the recipe that is made as large as it can be, within memory and `most`.
struct Quantity {
  const char* name;
  const char* key;
  const char* unit;
  int64_t most = 0;
  std::string bound;  // why no more than that
};
// "length" or "micro_batch". Throws UsageError for another.
Quantity quantity_called(const std::string& name, const Experiment& experiment);

struct LargestValue {
  int64_t value = 0;     // 0: not even 1 fits
  bool bounded = false;  // by Quantity::most, not by memory
  Plan plan;             // at that value; where none fits, the least memory at 1
};
// `what_if` plans with rows that may all be as long as the recipe allows.
LargestValue largest_of(const Quantity& quantity, const WhatIf& what_if, const std::optional<int64_t>& limit);

}  // namespace plimsoll
