#include "prepare/run/run_settings.h"

#include <cmath>

#include "prepare/resume.h"
#include "recipe/effective.h"
#include "runs/fingerprint.h"
#include "runs/model_card.h"

namespace plimsoll {

std::string SettledRecipe::fingerprint() const { return run_fingerprint(recipe_); }

std::string SettledRecipe::yaml() const { return effective_yaml(recipe_); }

void SettledRecipe::require_model_unchanged(const std::string& fingerprint,
                                            const std::filesystem::path& adapter) const {
  plimsoll::require_model_unchanged(recipe_, fingerprint, adapter);
}

void SettledRecipe::require_same_experiment(const std::filesystem::path& checkpoint,
                                            const TrainerState& saved, const TrainerState& run) const {
  plimsoll::require_same_experiment(checkpoint, saved, run, recipe_);
}

std::string SettledRecipe::extension_note(const TrainerState& saved, const TrainerState& run) const {
  return plimsoll::extension_note(recipe_, saved, run);
}

std::string SettledRecipe::model_card(const Plan& plan, const RunRecord& record) const {
  return plimsoll::model_card(recipe_, plan, record);
}

RunSettings::RunSettings(const Recipe& from)
    : recipe(from),
      weights{from.model, from.adapter, from.init, static_cast<uint64_t>(from.seed)},
      device(from.device),
      cuda_card(from.cuda_card),
      learning_rate(from),
      save_every(from.save.every),
      eval_every(from.eval.every),
      keep(from.save.keep),
      best(from.save.best),
      hub(from.save.hub),
      stop(from.stop),
      shuffle(from.data.shuffle),
      has_max_steps(from.schedule.max_steps.has_value()),
      epochs(static_cast<int64_t>(std::ceil(from.schedule.epochs))),
      tensorboard(from.log.tensorboard),
      labels(from.classify.labels),
      max_length(from.data.max_length) {}

}  // namespace plimsoll
