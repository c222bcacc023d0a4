// Plans methods of fine-tuning by lengths, to show which of them fit a device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "advise/what_if.h"

namespace plimsoll {

// One method at one length. Where it fits, the plan that `plimsoll plan` makes of it; else the least memory of any.
struct FitCell {
  std::string method;
  int64_t length = 0;
  std::string why_not;  // not possible at any memory, and why; empty: it was planned
  bool beyond = false;  // of why_not: longer than the model's positions
  bool fits = false;
  bool fits_memory = false;  // what `memory_bytes` is of; false beside a host or disk that is too small, too
  int64_t memory_bytes = 0;  // of what the budget bounds: the card, or the process
  int64_t host_bytes = 0, disk_bytes = 0;
  double tokens_per_second = 0, seconds_per_step = 0;
  std::string variant;  // in words
};

// Plans the recipe with the method and rows as long as `length`. `longest`: the model's positions. `shorter`: a cell of
// the method with shorter rows; where that did not fit, the least memory is asked for first.
FitCell fit_cell(const WhatIf& what_if, const std::string& method, int64_t length,
                 const std::optional<int64_t>& longest, const FitCell* shorter = nullptr);

// The method that fits at most lengths; of equals the faster at their shortest. Empty: none fits.
std::string first_choice(const std::vector<FitCell>& cells);

// "512,2048": lengths in tokens, each once and growing. Throws UsageError naming `what`.
std::vector<int64_t> read_lengths(const std::string& text, const std::string& what);
// "qlora,lora": of full, lora and qlora, each once. Likewise.
std::vector<std::string> read_methods(const std::string& text, const std::string& what);

}  // namespace plimsoll
