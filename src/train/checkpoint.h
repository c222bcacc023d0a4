// Checkpoints: folders `checkpoint-<step>` that transformers or PEFT can load, and complete enough to resume
// bit for bit: weights, masters, optimizer states, position in the data, the experiment they belong to.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "data/effective_batch.h"
#include "plan/experiment.h"
#include "template/template.h"
#include "train/weights.h"

namespace plimsoll {

struct TrainerState {
  int64_t step = 0;  // finished optimizer steps
  DataPosition position;
  std::string fingerprint;  // of the recipe (recipe/effective.h)
  std::string kernels;      // instruction set and threads: bits are promised within them
  int64_t total_steps = 0;
  double last_loss = 0.0;
};

struct CheckpointOptions {
  std::filesystem::path output;
  std::filesystem::path model_folder;
  std::string recipe_yaml;
  int64_t keep = 2;
  // What the rows were rendered with: written as chat_template.jinja. Without one that file is not there,
  // whatever the model folder has.
  std::optional<Template> chat_template = std::nullopt;
};

// Writes under a temporary name and renames; then removes the oldest beyond `keep`. Throws StoppedError when
// the disk has no room (checked before anything is written).
void save_checkpoint(const CheckpointOptions& options, const Experiment& experiment,
                     const PersistentState& state, const TrainerState& trainer);

// The newest complete checkpoint of a run folder.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& output);

TrainerState read_trainer_state(const std::filesystem::path& checkpoint);

// Restores every persistent tensor of training. Throws DamagedError for what is missing or of another shape.
void load_checkpoint(const std::filesystem::path& checkpoint, const Experiment& experiment,
                     const PersistentState& state);

// Makes the run folder itself a model (or adapter) folder with the checkpoint's files, as hard links where
// the file system allows them.
void publish_final(const std::filesystem::path& checkpoint, const std::filesystem::path& output);

}  // namespace plimsoll
