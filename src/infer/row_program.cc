#include "infer/row_program.h"

#include <chrono>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "prepare/host_needs.h"
#include "runs/evaluated_rows.h"
#include "train/batch_writer.h"
#include "train/run_programs.h"

namespace plimsoll {
namespace {

// Two batches and the one that is cut, a window of rows, and what a
// classifier's metrics keep.
std::vector<Component> host_of_rows(const Experiment& experiment, int64_t batch, int64_t rows) {
  std::vector<Component> components = {
      {"batches", 3 * EffectiveBatch::planned_bytes(batch, eval_shape(experiment))},
      {"rows", 4 * kUnitBytes}};
  if (const int64_t bytes = EvaluatedRows::planned_bytes(experiment.task, rows); bytes > 0)
    components.push_back({"evaluation answers", bytes});
  return components;
}

}  // namespace

RowPlan fitting_rows(const Experiment& experiment, const RowOptions& options, int64_t rows,
                     const InferenceDevice& device, const std::string& what) {
  const InferenceMemory memory(device);
  PlanRequest request;
  request.workload = {.experiment = experiment, .use = Use::evaluate, .dataset_rows = rows};
  if (options.batch > 0) request.choices.micro_batch = options.batch;
  request.target = answering_target(device, experiment, [experiment, rows](const Plan& plan) {
    return host_of_rows(experiment, plan.variant.micro_batch, rows);
  });
  request.target.budget = memory.budget();
  RowPlan made{device, make_plan(request)};
  const auto refusal = memory.refusal(what, {made.plan.arena_bytes(), made.plan.host_bytes()});
  if (!refusal) return made;
  throw DoesNotFitError(
      formatted("{} with {}{}{} tokens at a time; --batch, --max-length and --precision bf16 make it smaller",
                *refusal, format_count(made.batch()), made.batch() == 1 ? " row of " : " rows of ",
                format_count(experiment.max_length)));
}

RowProgram::RowProgram(const RowPlan& plan, const Experiment& experiment, const ModelPaths& paths,
                       RunObserver& observer)
    : plan_(plan),
      experiment_(experiment),
      session_(open_session(plan.plan, plan.device, {}, observer)),
      program_(plan.plan.programs[0], plan.plan.layout.programs[0], *session_.device,
               session_.memory.arenas()) {
  if (const std::string products = session_.device->products(); !products.empty())
    observer.event("products by " + products);
  load_base_weights(session_.state, paths.base,
                    [&](int64_t done, int64_t total) { observer.loading(done, total); });
  if (paths.adapter) load_adapters(session_.state, *paths.adapter);
}

RowTally RowProgram::run(const Next& next, const Done& done) {
  MicroSteps steps({plan_.batch()}, eval_shape(experiment_), 0);
  BatchWriter writer(program_, experiment_.model);
  RowTally tally;
  const auto start = std::chrono::steady_clock::now();
  writer.set(StepValue::first_micro_step, 1.0);
  while (const EffectiveBatch* batch = next()) {
    tally.rows += batch->packed_sequences();
    tally.skipped += batch->skipped_rows();
    tally.damaged += batch->damaged_rows();
    tally.truncated += batch->truncated_rows();
    tally.tokens += batch->tokens();
    steps.cut(*batch);
    for (int64_t i = 0; i < steps.count(); ++i) {
      const MicroBatch& micro = steps.fill(i);
      writer.write(micro);
      program_.run();
      writer.set(StepValue::first_micro_step, 0.0);
      done(*batch, micro);
    }
  }
  tally.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return tally;
}

std::span<const float> RowProgram::scores() { return read_scores(session_.state, scores_); }

std::span<const double> RowProgram::sums() const { return program_.result<double>(kEvalLossTensor); }

std::string row_plan_line(const RowPlan& plan, const Experiment& experiment) {
  return formatted("plan    device {} · {}{}{} tokens at a time · {}{}{}",
                   format_bytes(plan.plan.arena_bytes()), format_count(plan.batch()),
                   plan.batch() == 1 ? " row of " : " rows of ", format_count(experiment.max_length),
                   to_string(experiment.precision.compute),
                   experiment.quantised ? formatted(" · {}", to_string(experiment.quantisation.format)) : "",
                   plan.device.is_card() ? " · " + name_of(plan.device) : "");
}

}  // namespace plimsoll
