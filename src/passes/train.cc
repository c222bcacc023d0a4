#include "passes/train.h"

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "ops/rule.h"
#include "ops/step_values.h"

namespace plimsoll {
namespace {

Op update_op(OpKind kind, const std::string& scope) {
  Op op;
  op.kind = kind;
  op.scope = scope;
  op.stage = Stage::update;
  return op;
}

// One AdamW op: the weight, its states and its master copy, all updated in place.
void add_adamw(Graph& update, const Tensor& weight, TensorId gradient, TensorId norm,
               const TrainPrecision& precision, const OptimizerOptions& options) {
  const TensorId w = update.add_tensor(weight);
  const auto state = [&](const char* suffix, DType dtype, Role role) {
    return update.add_tensor({weight.name + suffix, weight.shape, dtype, role});
  };
  Op op = update_op(OpKind::adamw, weight.name);
  op.inputs = {update.find(kStepTensor), norm, gradient};
  op.outputs = {w, state(".exp_avg", precision.states, Role::optimizer_state),
                state(".exp_avg_sq", precision.states, Role::optimizer_state),
                precision.master ? state(".master", DType::f32, Role::master) : kNoTensor};
  // Biases and norm weights have one dimension.
  const double decay = weight.shape.rank() > 1 ? options.weight_decay : 0.0;
  op.attrs = {{"beta1", options.beta1},
              {"beta2", options.beta2},
              {"eps", options.eps},
              {"weight_decay", decay},
              {"stochastic", int64_t{precision.stochastic ? 1 : 0}}};
  emit(update, std::move(op), "");
}

}  // namespace

TrainPrecision adapter_precision(const TrainPrecision& model) {
  return {model.compute, DType::f32, DType::f32, model.compute != DType::f32, false};
}

Graph make_trainable(const Graph& graph) {
  Graph result = graph;
  for (size_t i = 0; i < graph.tensors().size(); ++i)
    if (graph.tensors()[i].role == Role::frozen_weight)
      result.set_role(static_cast<TensorId>(i), Role::trainable_weight);
  return result;
}

Graph build_update(const Graph& train, const TrainPrecision& precision, const OptimizerOptions& options) {
  Graph update("update");
  const TensorId step = update.add_tensor({kStepTensor, {kNumStepValues}, DType::f64, Role::input});
  const TensorId norm = update.add_tensor({kGradNormTensor, {2}, DType::f64, Role::metric});
  Op norm_op = update_op(OpKind::grad_norm, "optimizer");
  norm_op.inputs = {step};
  norm_op.outputs = {norm};
  norm_op.attrs = {{"max_norm", options.max_grad_norm}};
  std::vector<std::pair<const Tensor*, TensorId>> weights;  // with their gradients
  for (const Tensor& tensor : train.tensors()) {
    if (tensor.role != Role::trainable_weight) continue;
    const TensorId found = train.find(gradient_name(tensor.name));
    check_internal(found != kNoTensor, "build_update: " + tensor.name + " trains but has no gradient");
    const TensorId gradient = update.add_tensor(train.tensor(found));
    Op square = update_op(OpKind::grad_square, tensor.name);
    square.inputs = {gradient};
    square.outputs = {kNewTensor};
    norm_op.inputs.push_back(emit(update, std::move(square), tensor.name + kGradSquareSuffix)[0]);
    weights.emplace_back(&tensor, gradient);
  }
  emit(update, std::move(norm_op), "");
  for (const auto& [weight, gradient] : weights)
    add_adamw(update, *weight, gradient, norm, precision, options);
  return update;
}

Graph assign_scratch(const Graph& graph, const DeviceDescription& device) {
  Graph result = graph;
  for (size_t i = 0; i < result.ops().size(); ++i) {
    const int64_t bytes = scratch_bytes_of(result, result.ops()[i], device);
    if (bytes == 0) continue;
    const TensorId id =
        result.add_tensor({"scratch." + std::to_string(i), {bytes}, DType::u8, Role::scratch});
    result.ops()[i].scratch = id;
  }
  return result;
}

}  // namespace plimsoll
