#include "plan/experiment.h"

#include <algorithm>

#include "autodiff/autodiff.h"
#include "base/units.h"
#include "models/decoder.h"
#include "ops/rule.h"
#include "passes/update_in_backward.h"
#include "plan/train_graphs.h"

namespace plimsoll {
namespace {

BatchShape batch_of(const Experiment& experiment, int64_t micro, int64_t documents) {
  return {micro * experiment.max_length, micro * documents, experiment.max_length};
}

// Adapters, then quantised weights, where they are asked for.
Graph adapted(Graph graph, const LoraOptions* lora, const QuantiseOptions* nf4) {
  if (lora != nullptr) graph = add_lora(graph, *lora);
  return nf4 == nullptr ? graph : quantise(graph, *nf4);
}

const QuantiseOptions* nf4_of(const Experiment& experiment) {
  return experiment.nf4 ? &experiment.nf4_options : nullptr;
}

Graph build_evaluation(const Experiment& experiment, const Variant& variant) {
  const Graph forward =
      build_decoder_loss(experiment.model, batch_of(experiment, variant.eval_micro_batch, 1),
                         experiment.precision.compute, variant.loss_chunk, kEvalLossTensor);
  LoraOptions without_dropout = experiment.lora_options;
  without_dropout.dropout = 0.0;
  return adapted(forward, experiment.lora ? &without_dropout : nullptr, nf4_of(experiment));
}

Graph finish(Graph graph, const DeviceDescription& device) {
  verify(graph);
  return assign_scratch(std::move(graph), device);
}

}  // namespace

int64_t accumulation_for(int64_t effective, int64_t micro) { return ceil_div(effective, micro); }

int64_t default_loss_chunk(const Experiment& experiment, int64_t tokens) {
  const int64_t chunk = experiment.lora ? 512 : 1024;
  return std::min(chunk, tokens);
}

Graph build_forward(const Experiment& experiment, const Variant& variant) {
  Graph forward =
      build_decoder_loss(experiment.model, batch_of(experiment, variant.micro_batch, experiment.documents),
                         experiment.precision.compute, variant.loss_chunk, kLossTensor);
  if (!experiment.lora) return make_trainable(std::move(forward));
  return adapted(std::move(forward), &experiment.lora_options, nf4_of(experiment));
}

namespace {

TrainPrecision precision_of(const Experiment& experiment) {
  return experiment.lora ? adapter_precision(experiment.precision) : experiment.precision;
}

}  // namespace

Graph build_train(const Experiment& experiment, const Variant& variant) {
  return differentiate(build_forward(experiment, variant), {precision_of(experiment).gradients});
}

std::vector<Graph> build_programs(const Experiment& experiment, const Variant& variant,
                                  const DeviceDescription& device, Programs which) {
  return finish_programs(experiment, variant, device,
                         recompute(build_train(experiment, variant), variant.recompute), which);
}

std::vector<Graph> finish_programs(const Experiment& experiment, const Variant& variant,
                                   const DeviceDescription& device, Graph train, Programs which) {
  const TrainPrecision precision = precision_of(experiment);
  const bool all = which == Programs::all;
  const bool trains = all || which == Programs::micro_step;
  const bool updates = variant.update_in_backward ? trains : all || which == Programs::update;
  Graph update = updates ? build_update(train, precision, experiment.optimizer) : Graph();
  std::vector<Graph> programs;
  const auto add = [&](Graph graph, const char* name) {
    graph.set_name(name);
    programs.push_back(std::move(graph));
  };
  if (variant.update_in_backward && trains) {
    add(update_in_backward(std::move(train), update), kTrainProgram);
  } else {
    if (trains) add(std::move(train), kTrainProgram);
    if (updates) add(std::move(update), kUpdateProgram);
  }
  if (experiment.evaluates && (all || which == Programs::evaluation))
    add(build_evaluation(experiment, variant), kEvalProgram);
  programs = offload(std::move(programs), variant.offload, {device.reaches_host, variant.accumulation});
  for (Graph& program : programs) program = finish(std::move(program), device);
  return programs;
}

std::vector<Graph> build_evaluation_programs(const Experiment& experiment, const Variant& variant,
                                             const DeviceDescription& device) {
  Graph graph = build_evaluation(experiment, variant);
  graph.set_name(kEvalProgram);
  return {finish(graph, device)};
}

std::vector<Graph> build_generation_programs(const ModelSpec& model, const LoraOptions* lora,
                                             const QuantiseOptions* nf4, DType compute, int64_t prefill,
                                             int64_t capacity, const DeviceDescription& device) {
  std::vector<Graph> programs;
  for (const auto& [tokens, name] : {std::pair<int64_t, const char*>{prefill, "prefill"}, {1, "decode"}}) {
    Graph graph = adapted(build_decoder_cached(model, tokens, capacity, compute), lora, nf4);
    graph.set_name(name);
    programs.push_back(finish(std::move(graph), device));
  }
  return programs;
}

}  // namespace plimsoll
