#include "passes/train.h"

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "base/format.h"
#include "graph/op_kind.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "passes/name_pattern.h"
#include "passes/reduce_gradients.h"

namespace plimsoll {
namespace {

constexpr const char* kFreezeKey = "method.freeze";

Op update_op(OpKind kind, const std::string& scope, BlockId block) {
  Op op;
  op.kind = kind;
  op.block = block;
  op.scope = scope;
  op.stage = Stage::update;
  return op;
}

}  // namespace

TrainPrecision adapter_precision(const TrainPrecision& model) {
  return {model.compute, DType::f32, DType::f32, model.compute != DType::f32, false, model.tf32};
}

Graph make_trainable(Graph graph, const std::vector<std::string>& frozen) {
  std::vector<NamePattern> patterns;
  for (const std::string& pattern : frozen)
    patterns.emplace_back(formatted("(?:.*\\.)?(?:{})(?:\\..*)?$", pattern), pattern, kFreezeKey);
  std::vector<bool> names_one(patterns.size());
  bool any = false;
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    if (graph.tensors()[i].role != Role::frozen_weight) continue;
    bool stays = false;
    for (size_t k = 0; k < patterns.size(); ++k) {
      if (!patterns[k].match(graph.tensors()[i].name)) continue;
      stays = names_one[k] = true;
    }
    any = any || !stays;
    if (!stays) graph.set_role(static_cast<TensorId>(i), Role::trainable_weight);
  }
  for (size_t k = 0; k < patterns.size(); ++k)
    if (!names_one[k])
      throw UsageError(
          formatted("{}: '{}' matches no weight; plimsoll inspect lists their names", kFreezeKey, frozen[k]));
  if (!any) throw UsageError(std::string(kFreezeKey) + ": nothing is left to train");
  return graph;
}

Graph build_update(const Graph& train, const TrainPrecision& precision, const OptimizerOptions& options,
                   const Sharding& sharding) {
  Graph update("update");
  update.set_blocks(train.blocks());
  update.set_axes(train.axes());
  const TensorId step = update.add_tensor({kStepTensor, {kNumStepValues}, DType::f64, Role::input});
  const TensorId norm = update.add_tensor({kGradNormTensor, {2}, DType::f64, Role::metric});
  Op norm_op = update_op(OpKind::grad_norm, "optimizer", kNoBlock);
  norm_op.inputs = {step};
  norm_op.outputs = {norm};
  norm_op.attrs = {{"max_norm", options.max_grad_norm}};
  if (precision.scales_loss()) norm_op.attrs["scaled"] = int64_t{1};
  std::vector<std::pair<TensorId, TensorId>> weights;  // of `train`, with their gradients in `update`
  for (size_t i = 0; i < train.tensors().size(); ++i) {
    const Tensor& weight = train.tensors()[i];
    if (weight.role != Role::trainable_weight) continue;
    const TensorId found = train.find(gradient_name(weight.name));
    check_internal(found != kNoTensor, formatted("build_update: {} trains but has no gradient", weight.name));
    const int64_t elements = weight.whole_shape().elements();
    const int64_t piece = piece_elements(elements, sharding.ranks);
    const bool reduced = piece > 0 && sharding.gradients();
    const TensorId gradient =
        update.add_tensor(reduced ? gradient_piece(train.tensor(found), piece) : train.tensor(found));
    Op square = update_op(OpKind::grad_square, weight.name, weight.block);
    square.inputs = {gradient};
    square.outputs = {kNewTensor};
    if (piece > 0) {
      square.attrs["piece"] = piece;
      if (sharding.states()) square.attrs["elements"] = piece, square.attrs["first"] = int64_t{0};
      if (reduced) square.attrs["whole"] = elements;
    }
    norm_op.inputs.push_back(emit(update, std::move(square), weight.name + kGradSquareSuffix).front());
    weights.emplace_back(static_cast<TensorId>(i), gradient);
  }
  emit(update, std::move(norm_op), "");
  for (const auto& [weight, gradient] : weights)
    add_update(update, divided_weight(train.tensor(weight), sharding), gradient, norm, precision, options,
               sharding);
  return update;
}

namespace {

// Programs are made by the hundred: the name of each op's workspace is looked up once.
Name scratch_name(size_t op) {
  static thread_local std::vector<Name> names;
  if (op >= names.size()) names.resize(op + 1);
  if (names[op].empty()) names[op] = "scratch." + std::to_string(op);
  return names[op];
}

}  // namespace

Graph assign_scratch(Graph graph, const DeviceDescription& device) {
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const int64_t bytes = scratch_bytes_of(graph, graph.ops()[i], device);
    if (bytes == 0) continue;
    const TensorId id = graph.add_tensor({scratch_name(i), {bytes}, DType::u8, Role::scratch});
    graph.ops()[i].scratch = id;
  }
  return graph;
}

}  // namespace plimsoll
