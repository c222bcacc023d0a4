// `plimsoll train`: runs the plan.
#pragma once

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "prepare/setup.h"
#include "recipe/recipe.h"
#include "runs/observer.h"

namespace plimsoll {

struct TrainOptions {
  bool resume = false;
  bool overwrite = false;
  bool poison = false;                     // NaN where an owner died
  bool no_reuse = false;                   // every tensor has bytes of its own
  std::filesystem::path recipe_file = {};  // that the user named
  bool profile = false;                    // reports where the time of a few steps went, and writes
                                           // trace.json
  RunObserver* observer = &nobody();       // outlives the run
  MachineOptions machine;
  std::shared_ptr<ModelFiles> models = std::make_shared<ModelFiles>();  // of who read the recipe, if it did
};

// Plans, refuses with RefusedPlan or DoesNotFitError before anything is written, runs, saves. Returns ok or
// interrupted (saved).
ExitCode train(const Recipe& recipe, const TrainOptions& options);

}  // namespace plimsoll
