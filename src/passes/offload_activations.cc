#include <algorithm>
#include <utility>

#include "graph/name_ending.h"
#include "ops/rule.h"
#include "passes/offload_parts.h"
#include "passes/transfers.h"

namespace plimsoll {
namespace {

constexpr int32_t kNever = -1;

// By tensor id: the last op of the forward pass that touches it, and the first of the backward pass that
// reads it.
struct Uses {
  std::vector<int32_t> last_forward, first_backward;
};

Uses find_uses(const Graph& train) {
  const size_t n = train.tensors().size();
  Uses uses{std::vector<int32_t>(n, kNever), std::vector<int32_t>(n, kNever)};
  for (size_t at = 0; at < train.ops().size(); ++at) {
    const Op& op = train.ops()[at];
    const auto touch = [&](TensorId id, bool reads) {
      if (id == kNoTensor) return;
      const auto i = static_cast<size_t>(id);
      if (op.stage == Stage::forward) uses.last_forward[i] = static_cast<int32_t>(at);
      if (op.stage == Stage::backward && reads && uses.first_backward[i] == kNever)
        uses.first_backward[i] = static_cast<int32_t>(at);
    };
    for (const TensorId id : op.inputs) touch(id, true);
    for (const TensorId id : op.outputs) touch(id, false);
  }
  return uses;
}

// Activations that wait for the backward pass of a block that moves them, with their place.
std::vector<std::pair<TensorId, Space>> find_waiting(const Graph& train, const Uses& uses,
                                                     const OffloadChoice& choice) {
  BlockId last_block = kNoBlock;
  for (const Op& op : train.ops()) last_block = std::max(last_block, op.block);
  std::vector<std::pair<TensorId, Space>> waiting;
  for (size_t i = 0; i < train.tensors().size(); ++i) {
    const Tensor& tensor = train.tensors()[i];
    if (tensor.role != Role::activation || !choice.moves(tensor)) continue;
    if (uses.last_forward[i] == kNever || uses.first_backward[i] == kNever) continue;
    const BlockId block = train.ops()[static_cast<size_t>(uses.first_backward[i])].block;
    if (block == kNoBlock || block >= last_block) continue;
    if (const Space offloaded = choice.activations.of(block); offloaded != Space::device)
      waiting.emplace_back(static_cast<TensorId>(i), offloaded);
  }
  return waiting;
}

}  // namespace

Graph offload_activations(Graph train, const OffloadChoice& choice, const OffloadContext& context) {
  const Uses uses = find_uses(train);
  std::vector<TensorId> waiting;  // those that are copied
  std::vector<Space> spaces;
  for (const auto& [id, offloaded] : find_waiting(train, uses, choice)) {
    if (!context.transfers(offloaded)) {
      train.set_space(id, offloaded);
      continue;
    }
    waiting.push_back(id);
    spaces.push_back(offloaded);
  }
  if (waiting.empty()) return train;
  std::vector<TensorId> offloaded_of(train.tensors().size(), kNoTensor);
  // By op the first tensor that is stored behind it, and by tensor the next one.
  std::vector<TensorId> first_stored(train.ops().size(), kNoTensor);
  std::vector<TensorId> next_stored(train.tensors().size(), kNoTensor);
  static NameEnding ending(".home");
  for (size_t i = 0; i < waiting.size(); ++i) {
    const TensorId id = waiting[i];
    Tensor offloaded = train.tensor(id);
    offloaded.name = train.fresh_name(ending.behind(offloaded.name));
    offloaded.space = spaces[i];
    offloaded_of[static_cast<size_t>(id)] = train.add_tensor(std::move(offloaded));
  }
  for (auto id = waiting.rbegin(); id != waiting.rend(); ++id) {
    TensorId& first = first_stored[static_cast<size_t>(uses.last_forward[static_cast<size_t>(*id)])];
    next_stored[static_cast<size_t>(*id)] = std::exchange(first, *id);
  }
  std::vector<Op> ops = std::move(train.ops());
  train.ops().clear();
  for (size_t at = 0; at < ops.size(); ++at) {
    Op& op = ops[at];
    if (op.stage == Stage::backward)
      for (TensorId& id : op.inputs)
        if (id != kNoTensor && offloaded_of[static_cast<size_t>(id)] != kNoTensor)
          id = offloaded_of[static_cast<size_t>(id)];
    train.ops().push_back(std::move(op));
    if (first_stored[at] == kNoTensor) continue;
    const Op writer = train.ops().back();
    for (TensorId id = first_stored[at]; id != kNoTensor; id = next_stored[static_cast<size_t>(id)])
      append_store(train, id, offloaded_of[static_cast<size_t>(id)], 0, writer);
  }
  std::vector<char> offloaded(train.tensors().size());
  for (const TensorId id : offloaded_of)
    if (id != kNoTensor) offloaded[static_cast<size_t>(id)] = 1;
  return fetch_for_readers(std::move(train), offloaded);
}

}  // namespace plimsoll
