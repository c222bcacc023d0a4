// Counts the steps of a run and what is in them, before it starts.
#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "data/batch/statistics.h"
#include "prepare/setup.h"

namespace plimsoll {
namespace {

int64_t evaluations_of(const Every& every, int64_t steps, int64_t epochs) {
  constexpr int64_t kAtTheEnd = 1;
  if (!every.is_requested()) return kAtTheEnd;
  switch (every.unit) {
    case Every::Unit::steps:
      return std::max(kAtTheEnd, ceil_div(steps, every.steps));
    case Every::Unit::epochs:
      return std::max(kAtTheEnd, epochs);
    case Every::Unit::percent:
      return std::max(kAtTheEnd, static_cast<int64_t>(std::ceil(100.0 / every.percent)));
  }
  return kAtTheEnd;
}

// Rows stay whole, so that half a row of each sequence stays empty on average.
int64_t estimated_packed_steps(const DataSummary& data, int64_t effective, int64_t max_length) {
  const double mean = static_cast<double>(data.tokens) / static_cast<double>(std::max<int64_t>(1, data.rows));
  const double filled = std::max(1.0, static_cast<double>(max_length) - mean / 2);
  const double sequences = static_cast<double>(data.tokens) / filled;
  return std::max<int64_t>(1, std::llround(std::ceil(sequences / static_cast<double>(effective))));
}

// Every token a target, as nothing is known of prompts.
DataSummary summary_of(const StatedRows& stated, int64_t max_length) {
  DataSummary data;
  const int64_t length = std::min(stated.tokens, max_length);
  data.rows = stated.rows;
  data.tokens = data.targets = stated.rows * length;
  data.row_length = static_cast<double>(length);
  return data;
}

}  // namespace

std::optional<RunSteps> run_steps(const Recipe& recipe, const DataSetup* data,
                                  const std::optional<StatedRows>& stated) {
  const bool rows = data != nullptr && data->summary.has_value();
  if (!rows && !stated && !recipe.schedule.max_steps) return std::nullopt;
  RunSteps run;
  int64_t an_epoch = 0;
  if (rows || stated) {
    const DataSummary summary = rows ? *data->summary : summary_of(*stated, recipe.data.max_length);
    const bool packs = recipe.data.packing || recipe.data.joined;
    const bool estimated = packs && (!rows || !data->packed_steps);
    an_epoch = !packs      ? ceil_div(summary.rows, recipe.batch.effective)
               : estimated ? estimated_packed_steps(summary, recipe.batch.effective, recipe.data.max_length)
                           : *data->packed_steps;
    an_epoch = std::max<int64_t>(1, an_epoch);
    run.estimated = estimated && !recipe.schedule.max_steps;
    run.tokens = static_cast<double>(summary.tokens) / static_cast<double>(an_epoch);
    run.rows = static_cast<double>(summary.rows) / static_cast<double>(an_epoch);
    run.targets = static_cast<double>(summary.targets) / static_cast<double>(an_epoch);
    run.row_length = summary.row_length;
  }
  if (rows) {
    run.shared = data->shared;
    if (data->lengths) run.sizes = data->lengths->sizes;
    if (data->eval) run.eval_rows = data->eval->rows.size();
  }
  run.epochs = recipe.schedule.max_steps ? 0 : recipe.schedule.epochs;
  run.steps = recipe.schedule.max_steps.value_or(steps_of_epochs(recipe.schedule.epochs, an_epoch));
  const int64_t epochs = rows ? ceil_div(run.steps, an_epoch) : 0;
  if (run.eval_rows > 0) run.evaluations = evaluations_of(recipe.eval.every, run.steps, epochs);
  return run;
}

}  // namespace plimsoll
