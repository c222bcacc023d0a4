// All inputs of a recipe's plan, for recipes of one command that differ in a few keys: what they read alike is
// opened and measured once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prepare/setup.h"

namespace plimsoll {

// The rows of the recipes of one command: variants that read their rows alike share them.
class OpenedRows {
 public:
  // As open_data(). Null where the recipe names no rows.
  std::shared_ptr<const DataSetup> open(const Resolved& resolved, const Counting& counting, bool full_rows);
  // As with_length().
  Resolved with_length(const Resolved& resolved, int64_t threads);
  // Rows that were opened elsewhere: their files are not opened again.
  void take(std::shared_ptr<const DataSetup> data) { first_ = std::move(data); }

 private:
  struct Measured {
    Recipe recipe;
    bool every_row = false, full_rows = false;
    std::shared_ptr<const DataSetup> data;
  };
  struct Settled {
    Recipe recipe;  // whose data.max_length is that of the longest row
    int64_t length = 0;
  };
  std::shared_ptr<const DataSetup> first_;  // whose files are open
  std::vector<Measured> measured_;
  std::vector<Settled> settled_;
};

// A recipe with all inputs of its planning.
struct PlanInput {
  Resolved resolved;
  PlannedMachine machine;
  std::shared_ptr<const DataSetup> data;  // where the recipe names some
  PlanRequest request;
};

// The part of a command line that is the same for all of its recipes.
struct PlanWish {
  std::shared_ptr<ModelFiles> models;
  std::shared_ptr<OpenedRows> rows;
  std::string machine = {};                             // a file of `calibrate --export`; empty: this one
  bool every_row = false;                               // Counting
  std::function<void(int64_t, int64_t)> progress = {};  // likewise
  std::optional<StatedRows> stated = {};                // of a recipe that names no rows
};

// Errors about model and task come before those about rows. `full_rows` as for open_data().
PlanInput plan_input(const Recipe& recipe, const MachineOptions& machine, const PlanWish& wish,
                     bool full_rows = false);

}  // namespace plimsoll
