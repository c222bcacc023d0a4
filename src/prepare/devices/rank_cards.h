// The cards of a run on several devices: one for each process of a machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipe/load/load.h"

namespace plimsoll {

struct RankCards {
  std::vector<std::string> uuids;  // by process of this machine; empty: they compute without cards
  std::string line;                // for a terminal: which ones, or why none; may be empty
};

// The number of devices: what devices: auto means on this machine, else as the recipe says.
int64_t devices_here(const LoadedRecipe& loaded);

// The cards of `here` processes on this machine: those that devices names, with device: cuda the first ones that this
// process may use, with device: auto too if there are as many that can compute the recipe. `resumes`: a run continues
// on a CPU where it began there. Throws UsageError for a card that is not there, that is named twice or does not answer,
// for fewer cards than processes, and for cards of several kinds.
RankCards cards_of_ranks(const LoadedRecipe& loaded, int64_t here, bool resumes = false);

}  // namespace plimsoll
