// Checkpoints: folders `checkpoint-<step>` that transformers or PEFT can load, and complete enough to resume
// bit for bit: weights, masters, optimizer states, position in the data, the experiment they belong to.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "files/run_folder.h"
#include "jinja/template.h"
#include "plan/program/experiment.h"
#include "ranks/run_ranks.h"
#include "runs/trainer_state.h"
#include "weights/weights.h"

namespace plimsoll {

struct CheckpointOptions {
  RunFolder* folder = nullptr;
  std::shared_ptr<const SavedFrom> from;
  std::string recipe_yaml;
  int64_t keep = 2;                                // kKeepAll: none is removed
  std::optional<std::string> best = std::nullopt;  // in addition the one that is best in this (tasks/task.h)
  // The chat template that the rows were rendered with: written as chat_template.jinja. Without one that file
  // is not there, whatever the model folder has.
  std::optional<Template> chat_template = std::nullopt;
};

// A trained weight (or master) with an element that is NaN or infinite; none: all are finite. Reads them all.
std::optional<std::string> weight_not_finite(const PersistentState& state);

// Writes under a temporary name and renames. Throws StoppedError when the disk has no room (checked before
// anything is written). Where ranks divide the optimizer's states, all of them call it, and each writes its pieces into
// the leading rank's file: it is the file of one process.
void save_checkpoint(const CheckpointOptions& options, const Experiment& experiment,
                     const PersistentState& state, const TrainerState& trainer,
                     RunRanks& ranks = no_other_ranks());

// Files, and their folder, that save_checkpoint will make.
int64_t checkpoint_files(const CheckpointOptions& options);
// Bytes that save_checkpoint will write, about.
int64_t checkpoint_bytes(const CheckpointOptions& options, const Experiment& experiment,
                         const PersistentState& state);

// Removes the checkpoints that the options do not keep; one that holds what no run wrote stays, and is
// returned.
std::optional<std::filesystem::path> remove_old_checkpoints(const CheckpointOptions& options);

// The newest complete checkpoint of a run folder.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& output);
// The one whose evaluation is the best by `goal`, of equals the first; none where none was evaluated by it.
std::optional<std::filesystem::path> best_checkpoint(const std::filesystem::path& output,
                                                     std::string_view goal);

// Throws DamagedError for a manifest that is not one of ours, or another step's.
TrainerState read_trainer_state(const std::filesystem::path& checkpoint);

// Reads all files of the checkpoint once and compares them with checksums.json. False where that file is
// absent, as in checkpoints of earlier versions. Throws DamagedError naming the file that differs.
bool verify_checkpoint(const std::filesystem::path& checkpoint);

// Restores every persistent tensor of training. Throws DamagedError for what is missing or of another shape.
void load_checkpoint(const std::filesystem::path& checkpoint, const Experiment& experiment,
                     const PersistentState& state, RankReader* reader = nullptr);

// Makes the run folder itself a model (or adapter) folder with the checkpoint's files, as hard links where
// the file system allows them; each file appears whole.
void publish_final(const std::filesystem::path& checkpoint, RunFolder& output);

}  // namespace plimsoll
