#include "passes/offload.h"

#include "passes/transfers.h"

namespace plimsoll {
namespace {

bool has_stage(const Graph& graph, Stage stage) {
  for (const Op& op : graph.ops())
    if (op.stage == stage) return true;
  return false;
}

Graph offload_program(Graph graph, const OffloadChoice& choice, const OffloadContext& context) {
  const bool trains = has_stage(graph, Stage::backward);
  const bool updates = has_stage(graph, Stage::update);
  if (choice.weights != Space::device) graph = offload_weights(std::move(graph), choice.weights, context);
  if (trains && choice.activations != Space::device)
    graph = offload_activations(std::move(graph), choice.activations, context);
  // Where the update is a part of the backward pass, gradients are activations, and there is none to move.
  if (trains && choice.gradients != Space::device)
    graph = offload_gradients_of_train(std::move(graph), choice.gradients, context);
  if (!trains && updates && choice.gradients != Space::device)
    graph = offload_gradients_of_update(std::move(graph), choice.gradients, context);
  if (updates && choice.states != Space::device) graph = offload_states(std::move(graph), choice.states);
  if (updates) graph = slice_updates(std::move(graph), choice.slice_elements, context);
  return schedule_transfers(std::move(graph), choice.prefetch);
}

}  // namespace

bool worth_moving(const Tensor& tensor) { return tensor.bytes() >= kSmallestOffload; }

std::vector<Graph> offload(std::vector<Graph> programs, const OffloadChoice& choice,
                           const OffloadContext& context) {
  if (!choice.any()) return programs;
  for (Graph& program : programs) program = offload_program(std::move(program), choice, context);
  return programs;
}

}  // namespace plimsoll
