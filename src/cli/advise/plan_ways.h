// Suggestions that fit instead of a refused plan: commands to paste, each of them planned for real.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/advise/plan_command.h"
#include "plan/search/plan.h"

namespace plimsoll {

struct Way {
  std::string command;  // for a shell
  std::string effect;   // "same result", or what it changes
  bool same_result = false;
  int64_t memory_bytes = 0;  // of what the budget bounds
  int64_t disk_bytes = 0;
  double seconds_per_step = 0;
};

// Lossless ones first, at most one of a kind, in a few seconds at most: with fewer keys held fast, with a
// disk, another method, 8-bit states, shorter rows, and last a larger budget. `command` is what the way
// begins with, "plan", or "train" with its flags; `recipe` is as planned, its rows' length settled; `refused`
// its plan.
std::vector<Way> ways_out(const std::string& command, const PlanArguments& arguments, const Recipe& recipe,
                          const Plan& refused);

// Lines under a refusal, each begun by a line break; empty without ways.
std::string ways_text(const std::vector<Way>& ways);
nlohmann::ordered_json ways_json(const std::vector<Way>& ways);

}  // namespace plimsoll
