#include "train/run_programs.h"

#include <algorithm>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "base/format.h"
#include "formats/convert.h"
#include "graph/op_kind.h"
#include "ops/optimizer/optimizer.h"
#include "train/batch_writer.h"
#include "train/frozen_cache.h"
#include "train/run_clock.h"

namespace plimsoll {

namespace {

// Throws InternalError where the plan has no such program.
size_t number_of(const Plan& plan, std::string_view name) {
  for (size_t i = 0; i < plan.programs.size(); ++i)
    if (plan.programs[i].name() == name) return i;
  throw InternalError(formatted("the plan has no program {}", name));
}

ExecutorOptions options_of(const RunPlace& place, size_t program) {
  const std::string& name = place.plan.programs[program].name();
  return {.poison = place.poison,
          .recorder = name == kEvalProgram ? nullptr : place.recorder,
          .program = static_cast<int32_t>(program),
          // Poisoning would be captured, and is not planned.
          .graphs = place.poison ? 0 : place.plan.graphs_of(name)};
}

// The program that updates weights.
const char* updating(const Plan& plan) {
  return plan.variant.update_in_backward ? kTrainProgram : kUpdateProgram;
}

// That of a rank of several; an empty one on one device, whose programs are the plan's.
Graph own_update(const RunPlace& place) {
  if (place.ranks.is_alone()) return Graph();
  return for_rank(place.plan.programs[number_of(place.plan, updating(place.plan))], place.rank().number);
}

bool gathers(const Graph& program) {
  return std::ranges::any_of(program.ops(), [](const Op& op) { return op.kind == OpKind::all_gather; });
}

// A program as this rank gathers weights for it; an empty one where it gathers none.
Graph own_gathering(const RunPlace& place, const char* name) {
  const Graph& program = place.plan.programs[number_of(place.plan, name)];
  return gathers(program) ? for_rank(program, place.rank().number) : Graph();
}

// Ranks reduce gradients within the training step.
bool reduces(const RunPlace& place) {
  return !place.ranks.is_alone() && !place.plan.variant.update_in_backward &&
         place.plan.request.workload.experiment.sharding().gradients();
}

// Likewise of the training step that reduces gradients.
Graph own_train(const RunPlace& place) {
  if (!reduces(place)) return Graph();
  return for_rank(place.plan.programs[number_of(place.plan, kTrainProgram)], place.rank().number);
}

}  // namespace

Executor bind_program(const RunPlace& place, const char* name) {
  const size_t i = number_of(place.plan, name);
  return Executor(place.plan.programs[i], place.plan.layout.programs[i], place.device, place.memory.arenas(),
                  options_of(place, i));
}

GatheringProgram::GatheringProgram(const RunPlace& place, const char* name)
    : ranks_(place.ranks), own_(own_gathering(place, name)), executor_([&] {
        const size_t i = number_of(place.plan, name);
        ExecutorOptions options = options_of(place, i);
        if (gathers())
          options.hooks = [this, sum = place.sum](const Op& op) -> OpHooks {
            if (op.kind != OpKind::all_gather) return {};
            return {.after = [this, sum, op] { gather_weight(executor_, op, *sum); }};
          };
        return Executor(gathers() ? own_ : place.plan.programs[i], place.plan.layout.programs[i],
                        place.device, place.memory.arenas(), options);
      }()) {
  check_internal(!gathers() || place.sum != nullptr, "a program gathers weights, and nothing exchanges them");
}

std::optional<RunRanks::Exchange> GatheringProgram::begin() {
  if (!gathers()) return std::nullopt;
  ranks_.meet({});
  return RunRanks::Exchange(ranks_);
}

int64_t GatheringProgram::rounds(int64_t own) { return gathers() ? most_of(ranks_.group(), own) : own; }

std::span<const float> read_scores(const PersistentState& state, std::vector<float>& to) {
  const TableRow& row = *state.find(kScoresTensor);
  to.resize(static_cast<size_t>(row.shape.elements()));
  convert(ResidentValues<std::byte>(state, row).span(), row.dtype, std::as_writable_bytes(std::span(to)),
          DType::f32);
  return to;
}

ExecutorOptions OptimizerStep::hooked_options(const RunPlace& place, size_t program) {
  ExecutorOptions options = options_of(place, program);
  if (!ranks_.is_alone() && (plan_.programs[program].name() == updating(plan_) || divides_gradients()))
    options.hooks = [this](const Op& op) { return hooks_of(op); };
  return options;
}

OptimizerStep::OptimizerStep(const RunPlace& place)
    : plan_(place.plan),
      ranks_(place.ranks),
      own_(own_update(place)),
      own_train_(own_train(place)),
      train_(reduces(place) ? own_train_
             : !ranks_.is_alone() && plan_.variant.update_in_backward
                 ? own_
                 : plan_.programs[number_of(plan_, kTrainProgram)],
             plan_.layout.programs[number_of(plan_, kTrainProgram)], place.device, place.memory.arenas(),
             hooked_options(place, number_of(plan_, kTrainProgram))),
      steps_(plan_.request.workload.experiment.train_capacity(plan_.variant),
             train_shape(plan_.request.workload.experiment),
             plan_.request.workload.experiment.effective_batch, place.rank()),
      gradients_(place.ranks, place.device, PersistentState(plan_.layout, place.memory.arenas()), own_,
                 plan_.request.target.exchange) {
  if (plan_.variant.update_in_backward) return;
  const size_t i = number_of(plan_, kUpdateProgram);
  const Graph& update = ranks_.is_alone() ? plan_.programs[i] : own_;
  update_.emplace(update, plan_.layout.programs[i], place.device, place.memory.arenas(),
                  hooked_options(place, i));
}

// Gradients are complete at a rank in front of the op that squares them.
OpHooks OptimizerStep::hooks_of(const Op& op) {
  if (op.kind == OpKind::grad_norm && divides_states())
    return {.before = [this] { send([this] { gradients_.exchange_squares(update_ ? *update_ : train_); }); }};
  if (op.kind == OpKind::all_gather)
    return {.after = [this, op] { send([&] { gather_weight(train_, op, gradients_.sum()); }); }};
  const std::string weight = op.scope;
  if (op.kind == OpKind::reduce_scatter)
    return {.before = [this, weight] {
      const std::span<std::byte> gradient = train_.bytes_on_its_way(gradient_name(weight));
      if (without_rows_) train_.device().fill(gradient, 0);
      send([&] { gradients_.add_up(weight, {train_.device(), gradient}); });
    }};
  if (!plan_.variant.update_in_backward) return {};
  if (op.kind == OpKind::grad_square)
    return {.before = [this, weight] {
      send([&] {
        gradients_.add_up(weight, {train_.device(), train_.bytes_on_its_way(gradient_name(weight))});
      });
    }};
  if (op.stage == Stage::update && op.kind != OpKind::grad_norm)
    return {.after = [this, weight] { send([&] { gradients_.gather_weight(weight); }); }};
  return {};
}

template <class Work>
void OptimizerStep::send(Work work) {
  const auto start = RunClock::now();
  work();
  sending_ += seconds_since(start);
}

bool OptimizerStep::divides_states() const {
  return !ranks_.is_alone() && plan_.request.workload.experiment.sharding().states();
}

bool OptimizerStep::divides_gradients() const { return !own_train_.ops().empty(); }

OptimizerStep::Result OptimizerStep::run(const EffectiveBatch& batch, const Values& values) {
  // A rank that fails from here on leaves alone: others wait for what it sends, not for its word.
  std::optional<RunRanks::Exchange> exchange;
  if (!ranks_.is_alone()) exchange.emplace(ranks_);
  sending_ = 0;
  const int64_t sent_before = gradients_.sent_bytes();
  const int64_t tokens = accumulate(batch, values);
  if (exchange) send([this] { add_up(); });
  if (update_) update(values);
  if (update_ && divides_states()) send([this] { gradients_.gather_weights(); });
  if (exchange) exchange->done();
  sent_ += gradients_.sent_bytes() - sent_before;
  const auto loss = ranks_.is_alone() ? train_.result<double>(kLossTensor) : std::span<const double>(loss_);
  return {loss[0] / loss[1],
          (update_ ? *update_ : train_).result<double>(kGradNormTensor)[0],
          metrics_of(plan_.request.workload.experiment.task, loss),
          steps_.count(),
          tokens,
          sending_};
}

int64_t OptimizerStep::rounds() {
  if (!divides_gradients()) return update_ ? steps_.count() : std::max<int64_t>(1, steps_.count());
  int64_t most = 0;
  send([&] { most = most_of(ranks_.group(), steps_.count()); });
  return most;
}

// The rate is for updates in the backward pass.
int64_t OptimizerStep::accumulate(const EffectiveBatch& batch, const Values& values) {
  BatchWriter writer(train_, plan_.request.workload.experiment.model);
  steps_.cut(batch);
  const int64_t most = rounds();
  int64_t shared = 0;
  for (int64_t i = 0; i < steps_.count(); ++i) {
    const MicroBatch& micro = steps_.fill(i);
    if (micro.tree) shared += micro.live_tokens - micro.tree->tokens();
    writer.write(micro);
    if (kept_ != nullptr) kept_->read(train_, batch, micro);
    writer.set(StepValue::first_micro_step, i == 0 ? 1.0 : 0.0);
    // Inputs share the transient arena with everything else: all of them are written before each run.
    writer.set_seed(values.seed);
    writer.set(StepValue::optimizer_step, static_cast<double>(values.number));
    writer.set(StepValue::learning_rate, values.learning_rate);
    writer.set(StepValue::loss_scale, values.loss_scale / static_cast<double>(batch.target_tokens()));
    train_.run();
  }
  if (!ranks_.is_alone()) {
    const auto own = train_.result<double>(kLossTensor);
    loss_.assign(own.begin(), own.end());
  }
  for (int64_t i = steps_.count(); i < most; ++i) run_without_rows(writer, batch, values, i == 0);
  return batch.tokens() - shared;
}

// The row is another rank's, and its loss counts nothing here.
void OptimizerStep::run_without_rows(BatchWriter& writer, const EffectiveBatch& batch, const Values& values,
                                     bool first) {
  writer.write(steps_.fill_with(batch, 0));
  writer.set(StepValue::first_micro_step, first ? 1.0 : 0.0);
  writer.set_seed(values.seed);
  writer.set(StepValue::optimizer_step, static_cast<double>(values.number));
  writer.set(StepValue::learning_rate, values.learning_rate);
  writer.set(StepValue::loss_scale, 0.0);
  without_rows_ = true;
  train_.run();
  without_rows_ = false;
}

void OptimizerStep::add_up() {
  const bool any = steps_.count() > 0;  // else fewer rows than ranks
  if (update_) {
    if (!any) gradients_.clear();
    gradients_.add_up();
  }
  add_up_losses(ranks_.group(), plan_.request.workload.experiment.task, any, loss_);
}

void OptimizerStep::update(const Values& values) {
  const auto step = update_->input<double>(kStepTensor);
  const auto set = [&](StepValue which, double value) { step[static_cast<size_t>(which)] = value; };
  set(StepValue::learning_rate, values.learning_rate);
  set(StepValue::optimizer_step, static_cast<double>(values.update));
  set(StepValue::gradient_scale, values.loss_scale);
  set(StepValue::seed_low, static_cast<double>(values.seed & 0xFFFFFFFFU));
  set(StepValue::seed_high, static_cast<double>(values.seed >> 32));
  update_->run();
}

RunEvaluation::RunEvaluation(const RunPlace& place, DataSource source)
    : plan_(place.plan),
      ranks_(place.ranks),
      program_(place, kEvalProgram),
      state_(place.plan.layout, place.memory.arenas()),
      steps_(plan_.request.workload.experiment.eval_capacity(plan_.variant),
             eval_shape(plan_.request.workload.experiment), source.loader.effective, place.rank()),
      loader_(std::move(source.dataset), std::move(source.rows), std::move(source.encoder), source.loader) {}

std::optional<RunEvaluation::Result> RunEvaluation::run(const std::function<bool()>& interrupted) {
  loader_.start({});
  bool first = true;
  int64_t before = 0;  // sequences of earlier batches
  const TaskSpec& task = plan_.request.workload.experiment.task;
  ScoredRows rows(ranks_.group(), task);
  while (const EffectiveBatch* batch = loader_.next()) {
    if (interrupted()) return std::nullopt;
    run_batch(*batch, before, first, rows);
    before += batch->sequences();
  }
  const std::vector<double> all = sums(!first);
  if (all[1] <= 0) return std::nullopt;
  return Result{all[0] / all[1], static_cast<int64_t>(all[1]), rows.metrics(all)};
}

void RunEvaluation::run_batch(const EffectiveBatch& batch, int64_t before, bool& first, ScoredRows& rows) {
  const Executor& program = program_.executor();
  BatchWriter writer(program, plan_.request.workload.experiment.model);
  steps_.cut(batch);
  auto exchange = program_.begin();
  const int64_t rounds = program_.rounds(steps_.count());
  for (int64_t i = 0; i < steps_.count(); ++i) {
    const MicroBatch& micro = steps_.fill(i);
    writer.write(micro);
    writer.set(StepValue::first_micro_step, first ? 1.0 : 0.0);
    first = false;
    program.run();
    if (rows.needs_scores()) rows.add(read_scores(state_, scores_), micro, before);
  }
  run_without_rows(writer, batch, rounds - steps_.count());
  if (exchange) exchange->done();
}

void RunEvaluation::run_without_rows(BatchWriter& writer, const EffectiveBatch& batch, int64_t runs) {
  if (runs == 0) return;
  const auto sums = program_.executor().result<double>(kEvalLossTensor);
  const std::vector<double> own(sums.begin(), sums.end());
  for (int64_t i = 0; i < runs; ++i) {
    writer.write(steps_.fill_with(batch, 0));  // another's
    writer.set(StepValue::first_micro_step, 1.0);
    program_.executor().run();
  }
  state_.write(*state_.find(kEvalLossTensor), 0, std::as_bytes(std::span(own)));
}

// `any`: this rank had rows. The ranks meet first: one of them may have failed before.
std::vector<double> RunEvaluation::sums(bool any) {
  const auto own = program_.executor().result<double>(kEvalLossTensor);
  std::vector<double> all(own.begin(), own.end());
  if (ranks_.is_alone()) return all;
  ranks_.meet({});
  RunRanks::Exchange exchange(ranks_);
  add_up_losses(ranks_.group(), plan_.request.workload.experiment.task, any, all);
  exchange.done();
  return all;
}

}  // namespace plimsoll
