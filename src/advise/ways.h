// Suggestions that fit instead of a refused plan: commands to paste, each of them planned for real.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "advise/what_if.h"
#include "plan/search/refusal.h"

namespace plimsoll {

struct Way {
  std::string command;  // for a shell
  std::string effect;   // "same result", or what it changes
  bool same_result = false;
  int64_t memory_bytes = 0;  // of what the budget bounds
  int64_t disk_bytes = 0;
  double seconds_per_step = 0;
};

// A recipe that is changed, and the command that says the changes.
struct Variants {
  WhatIf plan;
  std::function<std::string(const Changes&)> command;
};

// Lossless ones first, at most one of a kind, in a few seconds at most: with fewer keys held fast, with a
// disk, another method, 8-bit states, shorter rows, and last a larger budget. `recipe` is as planned, its rows'
// length settled; `request` is what was refused.
std::vector<Way> ways_out(const Variants& variants, const Recipe& recipe, const PlanRequest& request,
                          const Refusal& refusal);

}  // namespace plimsoll
