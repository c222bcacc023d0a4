// Recipes as entries of the queue: each run of a sweep planned for itself, and the plans that it may have.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fleet/queue/store/store.h"

namespace plimsoll {

// "3", or "2..4": as many devices as the queue finds room for.
struct DeviceCounts {
  int least = 0, most = 0;  // 0: not stated
  [[nodiscard]] bool is_open() const { return least != most; }
};
// Throws UsageError.
DeviceCounts read_device_counts(const std::string& text);

struct RecipeToAdd {
  std::string file;
  std::vector<std::string> sets, sweeps, zips;
  std::string memory, host_memory;  // as they were written; empty: the recipe's
  std::string gpu;                  // a card by its name; empty: the recipe's
  DeviceCounts devices = {};        // one: a GPU of this machine, whatever the recipe says
  std::string plan;                 // of memory.plan; empty: the fastest, or what the queue chooses
  int threads = 0;                  // 0: the recipe's
};

// One of the choices of --plan.
struct PlanPreset {
  std::string name;  // as memory.plan has it
  queue::Need need;
  double seconds = 0;  // of the whole run, or of a step: RecipeEntry::per_step
  bool fits = true;
  bool taken = false;
};

struct RecipeEntry {
  queue::Entry entry;
  std::vector<PlanPreset> presets;  // where --plan was given
  bool per_step = false;            // the run's length is not known
};

// One entry for each point of the sweep; `common` has what all share.
std::vector<RecipeEntry> read_recipes(const RecipeToAdd& arguments, const queue::Entry& common);

// A table of the plan for each choice; empty where no choice was asked for.
std::string presets_text(const std::vector<RecipeEntry>& recipes);
nlohmann::ordered_json presets_json(const RecipeEntry& recipe);

}  // namespace plimsoll
