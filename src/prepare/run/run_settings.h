// Settings of a run that are in neither its plan nor its rows: where it starts, when it saves, evaluates and
// stops, and what it writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "prepare/schedule.h"
#include "recipe/run_values.h"
#include "runs/run_record.h"
#include "runs/trainer_state.h"

namespace plimsoll {

// The recipe as the run was planned, for questions that all of its keys answer.
class SettledRecipe {
 public:
  explicit SettledRecipe(const Recipe& recipe) : recipe_(recipe) {}

  // run_fingerprint() of runs/fingerprint.h.
  [[nodiscard]] std::string fingerprint() const;
  // Every key, for the run's folder.
  [[nodiscard]] std::string yaml() const;
  // These throw and return as those of runs/fingerprint.h, prepare/resume.h and runs/model_card.h.
  void require_model_unchanged(const std::string& fingerprint, const std::filesystem::path& adapter) const;
  void require_same_experiment(const std::filesystem::path& checkpoint, const TrainerState& saved,
                               const TrainerState& run) const;
  [[nodiscard]] std::string extension_note(const TrainerState& saved, const TrainerState& run) const;
  [[nodiscard]] std::string model_card(const Plan& plan, const RunRecord& record) const;

 private:
  Recipe recipe_;
};

// The weights that a run starts from.
struct WeightSource {
  std::string model;                   // folder
  std::optional<std::string> adapter;  // folder of the adapter that trains on
  Init init = Init::weights;
  uint64_t seed = 0;
};

struct RunSettings {
  explicit RunSettings(const Recipe& recipe);

  SettledRecipe recipe;
  WeightSource weights;
  DeviceChoice device;
  std::string cuda_card;
  LearningRate learning_rate;
  Every save_every, eval_every;
  int64_t keep;                     // checkpoints
  std::optional<std::string> best;  // the metric of the best one, which is kept too
  std::optional<std::string> hub;   // where the run is to be uploaded
  StopLimits stop;
  Shuffle shuffle;
  bool has_max_steps;  // the run ends after a stated number of steps, whatever its epochs
  int64_t epochs;
  bool tensorboard;
  std::vector<std::string> labels;  // names of the classes that the recipe gives
  int64_t max_length;
};

}  // namespace plimsoll
