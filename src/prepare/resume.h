// Resumes from a checkpoint: checks what must be equal, and reports what differs and what that does.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "prepare/allowed.h"
#include "recipe/load/load.h"
#include "runs/checkpoint.h"

namespace plimsoll {

// That a checkpoint was saved by; nothing where this version does not take it any more.
std::optional<Recipe> saved_recipe(const std::filesystem::path& checkpoint);

// The recipe with what a run settles when it begins and keeps: the rules by which rows are read
// (data.reading), the order of a shuffle, and which modules stay unquantised (method.unquantised: auto). A
// run that resumes has those of its newest checkpoint; checkpoints of before such a key, what was computed
// then.
Recipe as_begun(const Resolved& resolved, bool resumes);

// Throws UsageError naming the keys in which the checkpoint's experiment differs from the run's. A run may go
// on for more epochs or steps than it had.
void require_same_experiment(const std::filesystem::path& checkpoint, const TrainerState& saved,
                             const TrainerState& run, const Recipe& recipe);

// Keeps the meaning of another tool's recipe as earlier versions read it, for a run that began so; a note for
// each such key.
Recipe as_read_before(const LoadedRecipe& loaded, std::vector<std::string>& notes);

// Says what more steps do to the schedule of a run that is extended; "" where it has as many as before.
std::string extension_note(const Recipe& recipe, const TrainerState& saved, const TrainerState& run);

// Kernels, threads, micro-batch and loss chunk may differ: the sums are the same, formed in another order. ""
// where none of them does and the bits are those of a run that was never stopped.
std::string changed_bits_note(const TrainerState& saved, const TrainerState& run);

// For a run in fp16 that skipped steps under an earlier version, which may have had its weights off the
// device: those steps wrote over them. "" for every other run.
std::string skipped_steps_note(const std::filesystem::path& checkpoint, const TrainerState& saved,
                               const Plan& plan);

// Step, position and losses of the checkpoint; the run keeps its own kernels and batches.
void take_over(const TrainerState& saved, TrainerState& run);

// Keeps the micro-batch, the loss chunk and what devices divide of a resumed run's newest checkpoint, where the recipe leaves
// them open and as long as they fit, so that its bits do not depend on the memory that is free today.
void keep_sums_in_order(const Resolved& resolved, const PlannedMachine& machine, const DataSetup& data,
                        const LayoutOptions& layout, AllowedPlan& allowed);

// For the log's line of a start: what was planned.
nlohmann::ordered_json start_details(const Plan& plan, const TrainerState& run);

// Names the checkpoint from which a run that stopped can be resumed.
std::string last_checkpoint_words(const std::filesystem::path& output);

}  // namespace plimsoll
