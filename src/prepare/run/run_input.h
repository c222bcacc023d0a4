// Prepares a run: its folder is claimed, its rows are opened, it is planned, and refused where it does not fit.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "files/run_folder.h"
#include "prepare/run/run_settings.h"
#include "prepare/setup.h"
#include "ranks/run_ranks.h"
#include "runs/observer.h"

namespace plimsoll {

struct RunOptions {
  bool resume = false;
  bool overwrite = false;
  bool no_reuse = false;                   // every tensor has bytes of its own
  std::filesystem::path recipe_file = {};  // that the user named
  bool profile = false;                    // reports where the time of a few steps went, and writes
                                           // trace.json
  RunObserver* observer = &nobody();       // outlives the run
  MachineOptions machine;
  RunRanks* ranks = &no_other_ranks();  // of this run; outlives it
  // Called once the run has all that it needs: what is in its folder is its own from then on.
  std::function<void()> begun = {};
  std::string version = {};  // of the program, which is the same at all ranks
  std::shared_ptr<ModelFiles> models = std::make_shared<ModelFiles>();  // of who read the recipe, if it did
};

// All that a run takes.
struct RunInput {
  RunSettings settings;
  RunFolder folder;
  CpuSettings cpu;
  Plan plan;
  DataSetup data;
  std::vector<std::string> notes;  // of planning
};

// Throws RefusedPlan or DoesNotFitError before anything is written. A refusal takes the rows along.
RunInput prepare_run(const Recipe& recipe, const RunOptions& options);

}  // namespace plimsoll
