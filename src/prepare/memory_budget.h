// Reads the recipe's group `memory` for the planner: budgets in bytes, and where offloaded tensors may go.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/search/plan.h"
#include "prepare/planned_card.h"
#include "recipe/recipe.h"

namespace plimsoll {

// On a CPU one budget for the whole process, stated or of what is free now; with a card one for its arena,
// which is less than the card that is named has, and one for the host. Throws UsageError for what means
// nothing on the device.
// `nodes`: machines of this kind, whose memory and disk their devices share, at most `on_node` each (0: evenly); `least_free`: the free memory of the one that
// has least, 0: that of this machine.
// `least_of_card`: likewise what is free for an arena on the card that has least.
Budget read_budget(const Recipe& recipe, const std::optional<PlannedCard>& card, int64_t nodes = 1,
                   int64_t on_node = 0, int64_t least_free = 0, int64_t least_of_card = 0);

// A line for each device of which a stated budget leaves a part unused, as all ranks have the layout of the least.
std::vector<std::string> unused_memory_notes(const Recipe& recipe);

// Limits the arena to the free memory of a GPU: an open budget takes that instead, a stated one stays, and
// what it gives too much is refused when the run starts.
void limit_to_free(bool is_open, int64_t free_bytes, Budget& budget);

// Returns true if a run may have all of the card that memory.gpu names: else a size limits it.
bool is_whole_card(const Recipe::Memory& memory, const Card& card);

// Gives a recipe with device: cuda that names no card the one of this machine. Throws UsageError where there
// is none.
Recipe with_own_card(Recipe recipe);

// The host is an offload target only for a device with memory of its own.
std::vector<Space> offload_spaces(const Recipe& recipe);
// The parts that memory.tier or memory.offload names. Throws UsageError where it has no place to go.
std::optional<OffloadParts> offload_parts(const Recipe& recipe, const std::vector<Space>& targets);

// Reads memory.recompute for a model of so many layers. Throws UsageError for more layers than there are.
std::optional<RecomputeLevels> stated_recompute(const Recipe::Memory& memory, int64_t layers);

// Reads memory.offload_to for a model of so many layers. Throws UsageError for more layers than there are and
// for a place that the device lacks.
std::optional<OffloadTargets> stated_targets(const Recipe::Memory& memory, const std::vector<Space>& targets,
                                             int64_t layers);

// The recipe as `train` takes it. Runs of earlier versions had two budgets on a CPU: where one of them is
// resumed, one for the process takes their place, and a note reports it. Throws UsageError for a card that is
// only planned for or is not there, and for what every run needs (require_trainable).
Recipe recipe_to_train(const Recipe& recipe, bool resumes, std::vector<std::string>& notes);

}  // namespace plimsoll
