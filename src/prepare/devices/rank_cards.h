// The cards of a run on several devices: one for each process of a machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fleet/devices/gpu.h"
#include "ranks/run_ranks.h"
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

// Finds the cards of `here` processes that this one is about to start, and hands them on by the environment. Returns the
// line for a terminal. Throws as cards_of_ranks().
std::string give_cards_to_ranks(const LoadedRecipe& loaded, int64_t here, bool resumes);

// The device of one of several processes.
struct TakenCard {
  bool is_card = false;  // the only one that the process sees from here on
  std::string device;    // what the recipe's `device` becomes at all ranks; empty: it stays
  std::string line;      // for a terminal; may be empty
};
// All ranks call it, before CUDA is. The card is of those that the launcher has handed on, or else of those that the
// processes of this machine see. Throws as cards_of_ranks() and cards_apart().
TakenCard take_card_of_rank(const LoadedRecipe& loaded, RunRanks& ranks, bool resumes);

}  // namespace plimsoll
