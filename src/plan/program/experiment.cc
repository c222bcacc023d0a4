#include "plan/program/experiment.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "models/model.h"
#include "passes/keep_frozen.h"
#include "plan/program/reference_program.h"
#include "plan/program/train_graphs.h"

namespace plimsoll {
namespace {

Graph build_loss(const Experiment& experiment, const BatchShape& shape, int64_t chunk, Mode mode,
                 const char* loss_name, const char* scores_name) {
  const TaskRule& rule = rule_of(experiment.task.task);
  return rule.loss({experiment.task, experiment.model, shape, experiment.precision.compute, chunk, loss_name,
                    rule.scores ? scores_name : "", mode});
}

const LoraOptions* lora_of(const Experiment& experiment) {
  return experiment.lora ? &experiment.lora_options : nullptr;
}
const QuantiseOptions* quantisation_of(const Experiment& experiment) {
  return experiment.quantised ? &experiment.quantisation : nullptr;
}

PassContext context_of(const Experiment& experiment, const Variant& variant, const DeviceDescription* device,
                       Purpose purpose) {
  PassContext context;
  context.purpose = purpose;
  context.noise = experiment.noise;
  context.reference = experiment.task.preference.reference == Preference::Reference::computed;
  context.device = device;
  context.lora = lora_of(experiment);
  context.frozen = experiment.frozen;
  context.quantisation = quantisation_of(experiment);
  context.precision = experiment.lora ? adapter_precision(experiment.precision) : experiment.precision;
  context.optimizer = experiment.optimizer;
  context.sharding = experiment.sharding();
  context.keep_frozen = variant.keep_frozen;
  context.recompute = variant.recompute;
  context.update_in_backward = variant.update_in_backward;
  context.offload = variant.offload;
  context.transfers = {device == nullptr || device->reaches_host, variant.accumulation};
  return context;
}

Graph build_evaluation(const Experiment& experiment, const Variant& variant) {
  return build_loss(experiment, experiment.batch_shape(experiment.eval_capacity(variant), 1),
                    variant.loss_chunk, Mode::evaluate, kEvalLossTensor, kScoresTensor);
}

// The program that is left of it computes log-probabilities.
Graph build_reference(const Experiment& experiment, const Variant& variant) {
  LogProbGraph made = build_log_probs(
      experiment.model, experiment.batch_shape(experiment.train_capacity(variant), experiment.documents),
      experiment.precision.compute, variant.loss_chunk, Mode::evaluate);
  made.graph.set_role(made.logps, Role::metric);
  check_internal(made.graph.tensor(made.logps).name == kReferenceTensor, "another name of the reference");
  return std::move(made.graph);
}

Graph named(Graph graph, const char* name) {
  graph.set_name(name);
  return graph;
}

}  // namespace

RowSize Experiment::capacity_of(const RowSize& size) const {
  const RowSize longest = longest_row();
  const int64_t tokens = std::min(size.tokens - (shares_prefixes ? size.shared : 0), longest.tokens);
  return {std::max<int64_t>(0, tokens - begin_once()), std::min(size.targets, longest.targets)};
}

MicroCapacity Experiment::capacity(int64_t samples, int64_t tokens) const {
  const RowSize longest = longest_row();
  if (tokens == 0 || tokens >= tokens_of(samples)) return {samples, 0, 0, begin_once()};
  const int64_t targets =
      std::min(samples * longest.targets, ceil_div(tokens * longest.targets, longest.tokens));
  return {samples, tokens, targets, begin_once()};
}

MicroCapacity Experiment::train_capacity(const Variant& variant) const {
  return capacity(variant.micro_batch, variant.micro_tokens);
}

MicroCapacity Experiment::eval_capacity(const Variant& variant) const {
  return capacity(variant.eval_micro_batch, variant.eval_micro_tokens);
}

BatchShape Experiment::batch_shape(const MicroCapacity& capacity, int64_t documents_each) const {
  const int64_t tokens = capacity.by_tokens() ? capacity.tokens : tokens_of(capacity.samples);
  const int64_t sequences = capacity.samples * documents_each * sample_sequences();
  // A row that joins a tree splits a segment and adds one.
  const int64_t segments = shares_prefixes ? std::min(tokens, 2 * sequences - 1) : 0;
  if (!model.encoder_decoder) return {tokens, sequences, max_length, 0, 0, segments};
  // A word's score needs one token of the decoder: the start token.
  if (!model.words.empty()) return {tokens, sequences, max_length, sequences, 1};
  if (!has_targets()) return {tokens, sequences, max_length, tokens, max_length};
  return {tokens, capacity.samples, max_length, logit_rows(capacity), target_length};
}

int64_t Experiment::logit_rows(const MicroCapacity& capacity) const {
  const RowSize longest = longest_row();
  if (has_targets()) return capacity.by_tokens() ? capacity.targets : capacity.samples * longest.targets;
  return capacity.by_tokens() ? capacity.tokens : tokens_of(capacity.samples);
}

int64_t accumulation_for(int64_t effective, int64_t micro) { return ceil_div(effective, micro); }

// The rows of two micro-steps of the packer, one begun after the other, do not fit one, in rows or in one
// of the two kinds of tokens: so at most every second one is less than half full of what it is full of.
int64_t most_micro_steps(const Experiment& experiment, const MicroCapacity& capacity) {
  const int64_t effective = experiment.samples_each();
  const int64_t by_rows = accumulation_for(effective, capacity.samples);
  if (!capacity.by_tokens()) return by_rows;
  const RowSize longest = experiment.capacity_of(experiment.longest_row());
  const auto kinds = [&](int64_t all, int64_t of_one) { return of_one == 0 ? 0 : 2 * ceil_div(all, of_one); };
  return std::min(effective, 2 * by_rows +
                                 kinds(effective * longest.tokens, capacity.tokens - capacity.begin) +
                                 kinds(effective * longest.targets, capacity.targets));
}

int64_t default_loss_chunk(const Experiment& experiment, int64_t tokens) {
  const int64_t chunk = experiment.lora ? 512 : 1024;
  return std::min(chunk, tokens);
}

Graph build_micro_step(const Experiment& experiment, const Variant& variant, PassId last,
                       const AfterPass& after) {
  const BatchShape shape = experiment.batch_shape(experiment.train_capacity(variant), experiment.documents);
  Graph forward = build_loss(experiment, shape, variant.loss_chunk, Mode::train, kLossTensor, "");
  return run_passes(std::move(forward), context_of(experiment, variant, nullptr, Purpose::train), kFirstPass,
                    last, after);
}

Graph build_forward(const Experiment& experiment, const Variant& variant) {
  return build_micro_step(experiment, variant, PassId::quantise);
}

std::vector<Graph> build_programs(const Experiment& experiment, const Variant& variant,
                                  const DeviceDescription& device, Programs which) {
  return finish_programs(experiment, variant, device,
                         build_micro_step(experiment, variant, PassId::recompute), which);
}

std::vector<Graph> finish_programs(const Experiment& experiment, const Variant& variant,
                                   const DeviceDescription& device, Graph train, Programs which,
                                   const AfterPass& after) {
  const bool all = which == Programs::all;
  std::vector<Graph> programs;
  const auto add = [&](Graph graph, Purpose purpose, PassId first, const char* name) {
    PassContext context = context_of(experiment, variant, &device, purpose);
    context.runs = all;
    programs.push_back(run_passes(named(std::move(graph), name), context, first, kLastPass, after));
  };
  const bool updates = !variant.update_in_backward && (all || which == Programs::update);
  const PassContext context = context_of(experiment, variant, &device, Purpose::update);
  Graph update =
      updates ? build_update(train, context.precision, context.optimizer, context.sharding) : Graph();
  if (all || which == Programs::micro_step)
    add(std::move(train), Purpose::train, PassId::reduce_gradients, kTrainProgram);
  if (updates) add(std::move(update), Purpose::update, kFirstPass, kUpdateProgram);
  if (all && experiment.task.preference.reference == Preference::Reference::given)
    add(build_reference(experiment, variant), Purpose::evaluate, kFirstPass, kReferenceProgram);
  if (all && variant.keep_frozen)
    add(frozen_blocks(build_forward(experiment, variant)), Purpose::evaluate, PassId::recompute,
        kFrozenProgram);
  if (experiment.evaluates && (all || which == Programs::evaluation))
    add(build_evaluation(experiment, variant), Purpose::evaluate, kFirstPass, kEvalProgram);
  return programs;
}

std::vector<Graph> build_evaluation_programs(const Experiment& experiment, const Variant& variant,
                                             const DeviceDescription& device) {
  PassContext context = context_of(experiment, variant, &device, Purpose::evaluate);
  context.offload = {};
  return {run_passes(named(build_evaluation(experiment, variant), kEvalProgram), context)};
}

std::vector<Graph> build_generation_programs(const Experiment& experiment, const GenerationShape& shape,
                                             const DeviceDescription& device) {
  const DType compute = experiment.precision.compute;
  PassContext context;
  context.purpose = Purpose::generate;
  context.device = &device;
  context.lora = lora_of(experiment);
  context.quantisation = quantisation_of(experiment);
  // Checks that all that is named is there: each program may lack modules.
  if (context.lora != nullptr)
    add_lora(build_logits(experiment.model, {1, 1, 1, 1, 1}, compute), *context.lora);
  std::vector<Graph> programs;
  for (Graph& graph : build_generation(experiment.model, shape, compute))
    programs.push_back(run_passes(std::move(graph), context));
  return programs;
}

std::vector<Graph> build_inspection_programs(const Experiment& experiment, const Variant& variant,
                                             const DeviceDescription& device) {
  const bool scores = rule_of(experiment.task.task).scores;
  const DType compute = experiment.precision.compute;
  std::vector<Graph> programs = build_programs(experiment, variant, device);
  BatchShape shape = experiment.batch_shape({variant.micro_batch}, 1);
  if (!scores) shape.segments = 0;  // logits of every token
  Graph logits = scores ? build_scores(experiment.model, shape, compute, experiment.task.outputs,
                                       Mode::evaluate, kLogitsTensor)
                              .graph
                        : build_logits(experiment.model, shape, compute);
  PassContext context;
  context.device = &device;
  context.lora = lora_of(experiment);
  context.quantisation = quantisation_of(experiment);
  programs.push_back(run_passes(std::move(logits), context));
  return programs;
}

}  // namespace plimsoll
