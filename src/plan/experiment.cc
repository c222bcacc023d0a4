#include "plan/experiment.h"

#include <algorithm>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "base/units.h"
#include "models/decoder.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

BatchShape batch_of(const Experiment& experiment, int64_t micro) {
  return {micro * experiment.max_length, micro, experiment.max_length};
}

Graph build_evaluation(const Experiment& experiment, const Variant& variant) {
  const Graph forward = build_decoder_loss(experiment.model, batch_of(experiment, variant.eval_micro_batch),
                                           experiment.precision.compute, variant.loss_chunk, kEvalLossTensor);
  if (!experiment.lora) return forward;
  LoraOptions without_dropout = experiment.lora_options;
  without_dropout.dropout = 0.0;
  return add_lora(forward, without_dropout);
}

Graph finish(Graph graph, const char* name, const DeviceDescription& device) {
  graph.set_name(name);
  verify(graph);
  return assign_scratch(graph, device);
}

}  // namespace

int64_t accumulation_for(int64_t effective, int64_t micro) { return ceil_div(effective, micro); }

int64_t default_loss_chunk(const Experiment& experiment, int64_t tokens) {
  const int64_t chunk = experiment.lora ? 512 : 1024;
  return std::min(chunk, tokens);
}

Graph build_forward(const Experiment& experiment, const Variant& variant) {
  const Graph forward = build_decoder_loss(experiment.model, batch_of(experiment, variant.micro_batch),
                                           experiment.precision.compute, variant.loss_chunk, kLossTensor);
  return experiment.lora ? add_lora(forward, experiment.lora_options) : make_trainable(forward);
}

std::vector<Graph> build_programs(const Experiment& experiment, const Variant& variant,
                                  const DeviceDescription& device) {
  const TrainPrecision precision =
      experiment.lora ? adapter_precision(experiment.precision) : experiment.precision;
  Graph train =
      recompute(differentiate(build_forward(experiment, variant), {precision.gradients}), variant.recompute);
  Graph update = build_update(train, precision, experiment.optimizer);
  std::vector<Graph> programs;
  programs.push_back(finish(std::move(train), kTrainProgram, device));
  programs.push_back(finish(std::move(update), kUpdateProgram, device));
  if (experiment.evaluates)
    programs.push_back(finish(build_evaluation(experiment, variant), kEvalProgram, device));
  return programs;
}

std::vector<Graph> build_generation_programs(const ModelSpec& model, const LoraOptions* lora, DType compute,
                                             int64_t prefill, int64_t capacity,
                                             const DeviceDescription& device) {
  std::vector<Graph> programs;
  for (const auto& [tokens, name] : {std::pair<int64_t, const char*>{prefill, "prefill"}, {1, "decode"}}) {
    Graph graph = build_decoder_cached(model, tokens, capacity, compute);
    if (lora != nullptr) graph = add_lora(graph, *lora);
    programs.push_back(finish(std::move(graph), name, device));
  }
  return programs;
}

}  // namespace plimsoll
