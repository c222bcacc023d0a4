// What a recipe needs, by the program's own `plan --json` in a process of its own: the fleet stays free of
// what plans and computes, and the worker small.
#pragma once

#include <string>
#include <vector>

#include "fleet/queue/packing.h"

namespace plimsoll::queue {

struct Planned {
  Need need;           // of the host: trainings run on the CPU
  double seconds = 0;  // of the whole run; 0: unknown
};

// `words`: what stands behind `plan`. The program says itself on standard error what is wrong. Throws Error
// with its exit code, DoesNotFitError with the smallest need.
Planned plan_recipe(const std::string& program, const std::vector<std::string>& words);

// The same of an answer of `plan --json`; `recipe` for messages.
Planned read_plan(const std::string& json, const std::string& recipe);

}  // namespace plimsoll::queue
