#include "prepare/plan_input.h"

#include <algorithm>

#include "cpu/threads.h"

namespace plimsoll {
namespace {

// Returns whether open_data() and with_length() answer alike for both. Of other keys neither reads any.
bool reads_alike(const Recipe& a, const Recipe& b) {
  return a.model == b.model && a.init == b.init && a.adapter == b.adapter && a.task == b.task &&
         a.reward == b.reward && a.classify == b.classify && a.dpo == b.dpo && a.data == b.data &&
         a.batch.effective == b.batch.effective && a.eval == b.eval && a.seed == b.seed &&
         a.output == b.output;
}

}  // namespace

std::shared_ptr<const DataSetup> OpenedRows::open(const Resolved& resolved, const Counting& counting,
                                                  bool full_rows) {
  if (resolved.recipe.data.train.empty()) return nullptr;
  for (const Measured& known : measured_)
    if (known.every_row == counting.every_row && known.full_rows == full_rows &&
        reads_alike(known.recipe, resolved.recipe))
      return known.data;
  auto data = std::make_shared<const DataSetup>(open_data(resolved, counting, full_rows, first_.get()));
  measured_.push_back({resolved.recipe, counting.every_row, full_rows, data});
  if (first_ == nullptr) first_ = data;
  return data;
}

Resolved OpenedRows::with_length(const Resolved& resolved, int64_t threads) {
  if (resolved.recipe.data.max_length != kLongestRow) return resolved;
  for (const Settled& known : settled_) {
    if (!reads_alike(known.recipe, resolved.recipe)) continue;
    Resolved settled = resolved;
    settled.recipe.data.max_length = known.length;
    return settled;
  }
  Resolved settled = plimsoll::with_length(resolved, threads, first_.get());
  settled_.push_back({resolved.recipe, settled.recipe.data.max_length});
  return settled;
}

PlanInput plan_input(const Recipe& recipe, const MachineOptions& machine, const PlanWish& wish,
                     bool full_rows) {
  const int64_t threads =
      std::min<int64_t>(machine.threads > 0 ? machine.threads : INT64_MAX, available_cpus());
  PlanInput input;
  input.resolved = wish.rows->with_length(resolve(recipe, wish.models), threads);
  input.machine = planned_machine(machine, wish.machine);
  if (input.resolved.recipe.data.train.empty()) input.resolved.stated = wish.stated;
  if (!input.resolved.recipe.data.train.empty()) {
    (void)read_experiment(input.resolved);
    input.data = wish.rows->open(input.resolved, {wish.every_row, wish.progress, threads}, full_rows);
  }
  input.request = plan_request(input.resolved, input.machine, input.data.get());
  return input;
}

}  // namespace plimsoll
