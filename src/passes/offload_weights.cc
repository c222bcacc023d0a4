#include <algorithm>

#include "passes/offload_parts.h"
#include "passes/transfers.h"

namespace plimsoll {
namespace {

// Adapters stay: they are small compared with their gradients and states, and read in every block.
bool is_streamed(const Tensor& tensor, const OffloadChoice& choice) {
  const bool weight = tensor.role == Role::frozen_weight || tensor.role == Role::trainable_weight;
  return weight && tensor.block != kNoBlock && tensor.parameter.origin != Origin::adapter &&
         choice.moves(tensor);
}

}  // namespace

Graph offload_weights(Graph program, const OffloadChoice& choice, const OffloadContext& context) {
  std::vector<char> offloaded(program.tensors().size());
  for (size_t i = 0; i < offloaded.size(); ++i) {
    if (!is_streamed(program.tensors()[i], choice)) continue;
    const Space target = choice.weights.of(program.tensors()[i].block);
    program.set_space(static_cast<TensorId>(i), target);
    offloaded[i] = context.transfers(target) ? 1 : 0;
  }
  if (std::ranges::find(offloaded, 1) == offloaded.end()) return program;
  return fetch_for_readers(std::move(program), offloaded);
}

}  // namespace plimsoll
