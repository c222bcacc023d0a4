// The cards of a run on several devices: one for each process of a machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fleet/devices/gpu.h"
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

// The cards that a process of the run sees, which its launcher may have given to it alone.
struct CardsOfRank {
  int rank = 0;
  std::vector<devices::Gpu> gpus;
};
// Those that this process sees, for the others; empty where the recipe computes without.
std::string seen_cards(const LoadedRecipe& loaded, bool resumes);
CardsOfRank read_seen_cards(int rank, const std::string& text);

// Cards of the processes of a machine that do not see the same ones, as with Slurm's --gpus-per-task=1: each has the
// first that it sees. nullopt: they see the same, or what they see decides nothing. `booked`: the launcher gives out what
// was asked for, so that device: auto does not go without. Throws UsageError, with the ranks and their cards, for one
// that two of them have, for a rank without a card, and for cards of several kinds.
std::optional<RankCards> cards_apart(const LoadedRecipe& loaded, const std::vector<CardsOfRank>& here,
                                     bool booked);

}  // namespace plimsoll
