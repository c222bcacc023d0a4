#include "passes/keep_frozen.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/op_kind.h"

namespace plimsoll {
namespace {

bool draws_at_random(const Op& op) {
  return op.kind == OpKind::dropout || op.kind == OpKind::embedding_noise || op.attrs.contains("dropout");
}

// The first block in which anything differs from step to step, or the number of all; 0 where the embeddings
// do.
BlockId first_changing_block(const Graph& graph) {
  std::vector<bool> changes(graph.tensors().size());
  for (size_t i = 0; i < changes.size(); ++i) changes[i] = graph.tensors()[i].role == Role::trainable_weight;
  auto first = static_cast<BlockId>(graph.blocks().size());
  for (const Op& op : graph.ops()) {
    const bool changed =
        draws_at_random(op) || std::any_of(op.inputs.begin(), op.inputs.end(), [&](TensorId id) {
          return id != kNoTensor && changes[static_cast<size_t>(id)];
        });
    if (!changed) continue;
    if (op.block != kNoBlock) first = std::min(first, op.block);
    for (const TensorId id : op.outputs)
      if (id != kNoTensor) changes[static_cast<size_t>(id)] = true;
  }
  return first;
}

// Marks the ops that the needed tensors are made by, up to `given`; `needed` begins with the results.
std::vector<bool> needed_ops(const Graph& graph, std::vector<bool> needed, TensorId given) {
  std::vector<bool> ops(graph.ops().size());
  for (size_t i = ops.size(); i-- > 0;) {
    const Op& op = graph.ops()[i];
    ops[i] = std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
      return id != kNoTensor && id != given && needed[static_cast<size_t>(id)];
    });
    if (!ops[i]) continue;
    for (const TensorId id : op.inputs)
      if (id != kNoTensor) needed[static_cast<size_t>(id)] = true;
  }
  return ops;
}

std::vector<bool> results(const Graph& graph) {
  std::vector<bool> needed(graph.tensors().size());
  for (size_t i = 0; i < needed.size(); ++i) needed[i] = is_persistent(graph.tensors()[i].role);
  return needed;
}

// The output of the blocks below `first` that later ops read; nullopt unless it is one tensor with a row for
// each token of the first axis, and nothing else of those blocks is read.
std::optional<TensorId> boundary_below(const Graph& graph, BlockId first) {
  const auto is_below = [first](const Op& op) { return op.block != kNoBlock && op.block < first; };
  std::vector<AxisId> below(graph.tensors().size(), kMostAxes);  // the axis of what they make
  TensorId boundary = kNoTensor;
  for (const Op& op : graph.ops()) {
    for (const TensorId id : op.inputs) {
      if (is_below(op) || id == kNoTensor || below[static_cast<size_t>(id)] == kMostAxes) continue;
      if (boundary != kNoTensor && boundary != id) return std::nullopt;
      boundary = id;
    }
    for (const TensorId id : op.outputs)
      if (id != kNoTensor && is_below(op)) below[static_cast<size_t>(id)] = op.axis;
  }
  const TensorId ids = graph.find(graph.axis_input(kFirstAxis, "input_ids"));
  if (boundary == kNoTensor || ids == kNoTensor || below[static_cast<size_t>(boundary)] != kFirstAxis)
    return std::nullopt;
  const Tensor& tensor = graph.tensor(boundary);
  if (tensor.role != Role::activation || tensor.shape.rank() != 2 ||
      tensor.shape[0] != graph.tensor(ids).shape[0])
    return std::nullopt;
  const std::vector<bool> ops = needed_ops(graph, results(graph), boundary);
  for (size_t i = 0; i < ops.size(); ++i)
    if (ops[i] && is_below(graph.ops()[i])) return std::nullopt;
  return boundary;
}

// Below the highest block there is one for. (A last block may compute no more than the rows that are scored.)
std::optional<TensorId> boundary_of(const Graph& graph) {
  for (BlockId first = first_changing_block(graph); first > 0; --first)
    if (const auto boundary = boundary_below(graph, first)) return boundary;
  return std::nullopt;
}

// The graph with these ops alone and what they touch, the boundary under its name. All weights and inputs
// stay with `all_targets`.
Graph with_ops(const Graph& graph, const std::vector<bool>& kept, TensorId boundary, Role role,
               bool all_targets) {
  Graph result(graph.name());
  result.set_blocks(graph.blocks());
  result.set_axes(graph.axes());
  std::vector<bool> touched(graph.tensors().size());
  for (size_t i = 0; i < touched.size(); ++i) {
    const Role of = graph.tensors()[i].role;
    touched[i] = of == Role::input || (all_targets && is_persistent(of));
  }
  for (size_t i = 0; i < kept.size(); ++i)
    for (const Operands* operands : {&graph.ops()[i].inputs, &graph.ops()[i].outputs})
      for (const TensorId id : *operands)
        if (kept[i] && id != kNoTensor) touched[static_cast<size_t>(id)] = true;
  std::vector<TensorId> moved(touched.size(), kNoTensor);
  for (size_t i = 0; i < touched.size(); ++i) {
    if (!touched[i]) continue;
    Tensor tensor = graph.tensors()[i];
    if (static_cast<TensorId>(i) == boundary) {
      tensor.name = kKeptTensor;
      tensor.role = role;
    }
    moved[i] = result.add_tensor(std::move(tensor));
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) continue;
    Op op = graph.ops()[i];
    for (Operands* operands : {&op.inputs, &op.outputs})
      for (TensorId& id : *operands)
        if (id != kNoTensor) id = moved[static_cast<size_t>(id)];
    result.ops().push_back(std::move(op));
  }
  return result;
}

TensorId must_have_boundary(const Graph& forward) {
  const auto boundary = boundary_of(forward);
  check_internal(boundary.has_value(), "a forward pass without frozen blocks is to be cut behind them");
  return *boundary;
}

}  // namespace

bool has_frozen_blocks(const Graph& forward) { return boundary_of(forward).has_value(); }

Graph begin_at_kept(const Graph& forward) {
  const TensorId boundary = must_have_boundary(forward);
  return with_ops(forward, needed_ops(forward, results(forward), boundary), boundary, Role::input, true);
}

Graph frozen_blocks(const Graph& forward) {
  const TensorId boundary = must_have_boundary(forward);
  std::vector<bool> needed(forward.tensors().size());
  needed[static_cast<size_t>(boundary)] = true;
  return with_ops(forward, needed_ops(forward, std::move(needed), kNoTensor), boundary, Role::activation,
                  false);
}

}  // namespace plimsoll
