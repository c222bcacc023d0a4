// Plans a recipe by the program's own `plan --json` in a process of its own: so the fleet's code needs none
// that plans or computes, and the worker stays small.
#pragma once

#include <string>
#include <vector>

#include "fleet/queue/packing/packing.h"

namespace plimsoll::queue {

struct Planned {
  Need need;           // of the host, or of cards and the host; of all processes together
  double seconds = 0;  // of the whole run; 0: unknown
  double seconds_per_step = 0;
  int64_t smallest_bytes = 0;  // of any plan: on each card, or of all processes on the host
};

// `words`: what stands behind `plan`. The program itself prints errors on standard error. Throws Error with
// its exit code, DoesNotFitError with the smallest need.
Planned plan_recipe(const std::string& program, const std::vector<std::string>& words);

// Reads the same from the output of `plan --json`; `words` for messages. On a named GPU the arena is reserved
// with all that the process has there in addition.
Planned read_plan(const std::string& json, const std::vector<std::string>& words);

// Plans of the same run in less memory, each at least a twentieth smaller than the one before it; none where
// no time is predicted. `words` as of plan_recipe.
std::vector<SmallerPlan> smaller_plans(const std::string& program, const std::vector<std::string>& words,
                                       const Planned& planned);
// With half and a quarter of its threads too, and with one; the fastest first. None is slower than another
// that takes no more of anything.
std::vector<SmallerPlan> plans_of_fewer_threads(const std::string& program,
                                                const std::vector<std::string>& words,
                                                const Planned& planned);
// Sorted so, and without those that are.
std::vector<SmallerPlan> worth_keeping(std::vector<SmallerPlan> plans, const Need& own);
// The same of an answer of `plan --sweep memory=.. --json`.
std::vector<SmallerPlan> read_sweep(const std::string& json, const Planned& planned);

// Appends to the words of `train` what it has to keep to, and replaces what is there of it: on a card its
// budget is what is reserved of the card, and of several devices their number. `on_node`: of the processes, so many
// share a machine's memory; 0: all.
void bind_to_plan(std::vector<std::string>& words, const Need& need, int on_node = 0);

}  // namespace plimsoll::queue
