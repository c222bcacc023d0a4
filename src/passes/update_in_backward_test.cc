#include "passes/update_in_backward.h"
#include "graph/op_kind.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "models/model.h"
#include "models/test_specs.h"
#include "ops/operands.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rule.h"
#include "passes/recompute.h"
#include "passes/train.h"

namespace plimsoll {
namespace {

Graph train_program(DType gradients = DType::f32) {
  const ModelSpec spec =
      test_spec({.hidden = 16, .mlp = 24, .layers = 3, .heads = 2, .kv_heads = 1, .vocab = 32, .tied = true});
  const Graph forward = build_loss(spec, {8, 1, 8}, DType::bf16, 4, Mode::train, "loss");
  return recompute(differentiate(make_trainable(forward), {gradients}),
                   {std::vector(3, RecomputePoint::block), 1});
}

Graph update_program(const Graph& train, double max_norm, DType states = DType::f32) {
  const TrainPrecision precision{DType::bf16, DType::f32, states, false, true};
  return build_update(train, precision, {.max_grad_norm = max_norm});
}

bool contains(const Operands& ids, TensorId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

TEST(UpdateInBackward, every_weight_is_updated_once_after_its_gradients_writers_and_its_own_readers) {
  const Graph train = train_program();
  const Graph merged = update_in_backward(train, update_program(train, 0));
  verify(merged);
  int updated = 0;
  for (size_t at = 0; at < merged.ops().size(); ++at) {
    const Op& op = merged.ops()[at];
    if (op.kind != OpKind::adamw) continue;
    ++updated;
    EXPECT_FALSE(op.has_input(kNormInput));
    for (size_t i = at + 1; i < merged.ops().size(); ++i) {
      const Op& later = merged.ops()[i];
      EXPECT_FALSE(contains(later.inputs, op.outputs[kWeightOutput])) << print_op(merged, later);
      EXPECT_FALSE(contains(later.outputs, op.inputs[kGradientInput])) << print_op(merged, later);
    }
  }
  EXPECT_EQ(updated, std::count_if(train.tensors().begin(), train.tensors().end(), [](const Tensor& tensor) {
              return tensor.role == Role::trainable_weight;
            }));
}

TEST(UpdateInBackward, no_gradient_outlives_its_layer_but_that_of_the_tied_table) {
  const Graph train = train_program();
  const Graph merged = update_in_backward(train, update_program(train, 0));
  const TensorId gradient = merged.find("model.layers.2.mlp.down_proj.weight.grad");
  EXPECT_EQ(merged.tensor(gradient).role, Role::activation);
  size_t last_use = 0;
  size_t next_layer = merged.ops().size();
  for (size_t at = 0; at < merged.ops().size(); ++at) {
    const Op& op = merged.ops()[at];
    if (contains(op.inputs, gradient) || contains(op.outputs, gradient)) last_use = at;
    const bool below = op.stage == Stage::backward && op.scope.starts_with("model.layers.1.");
    if (below) next_layer = std::min(next_layer, at);
  }
  EXPECT_LT(last_use, next_layer);
}

TEST(UpdateInBackward, no_update_that_a_step_may_skip_is_taken) {
  const Graph train = train_program();
  const TrainPrecision fp16{DType::f16, DType::f32, DType::f32, true, false};
  EXPECT_THROW(update_in_backward(train, build_update(train, fp16, {.max_grad_norm = 0})), InternalError);
}

TEST(UpdateInBackward, the_norm_is_still_computed_from_all_squares) {
  const Graph train = train_program();
  const Graph update = update_program(train, 0);
  const Graph merged = update_in_backward(train, update);
  const Op& norm = merged.ops().back();
  EXPECT_EQ(norm.kind, OpKind::grad_norm);
  EXPECT_EQ(merged.tensor(norm.outputs[operand::grad_norm::norm]).role, Role::metric);
  const auto is_norm = [](const Op& op) { return op.kind == OpKind::grad_norm; };
  EXPECT_EQ(norm.inputs.size(),
            std::find_if(update.ops().begin(), update.ops().end(), is_norm)->inputs.size());
}

TEST(UpdateInBackward, gradients_of_lower_precision_verify_too) {
  const Graph train = train_program(DType::bf16);
  verify(update_in_backward(train, update_program(train, 0, DType::bf16)));
}

TEST(UpdateInBackward, clipping_is_refused) {
  const Graph train = train_program();
  EXPECT_THROW(update_in_backward(train, update_program(train, 1.0)), InternalError);
}

}  // namespace
}  // namespace plimsoll
