#include "passes/offload.h"

#include "passes/offload_parts.h"
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
  graph = offload_weights(std::move(graph), choice, context);
  // Where the update is a part of the backward pass, gradients are activations, and there is none to move.
  if (trains) {
    graph = offload_activations(std::move(graph), choice, context);
    graph = offload_gradients_of_train(std::move(graph), choice, context);
  } else if (updates) {
    graph = offload_gradients_of_update(std::move(graph), choice, context);
  }
  if (updates) graph = slice_updates(offload_states(std::move(graph), choice), choice, context);
  return schedule_transfers(std::move(graph), choice.prefetch);
}

}  // namespace

std::vector<Graph> offload(std::vector<Graph> programs, const OffloadChoice& choice,
                           const OffloadContext& context) {
  if (!choice.any()) return programs;
  for (Graph& program : programs) program = offload_program(std::move(program), choice, context);
  return programs;
}

}  // namespace plimsoll
