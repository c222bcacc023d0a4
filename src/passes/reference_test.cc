#include "passes/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "graph/op_kind.h"
#include "models/test_specs.h"
#include "ops/operands.h"
#include "ops/rule.h"
#include "passes/lora.h"
#include "passes/noise.h"
#include "passes/recompute.h"
#include "tasks/task.h"

namespace plimsoll {
namespace {

ModelSpec tiny() { return test_spec({.hidden = 16, .mlp = 24, .heads = 2, .kv_heads = 1, .vocab = 32}); }

Graph forward(const ModelSpec& model) {
  return rule_of(Task::dpo).loss({{.task = Task::dpo}, model, {16, 4, 4}, DType::f32, 4, "loss", ""});
}

bool of_reference(const Op& op) { return op.scope.text().starts_with("reference."); }

int count(const Graph& graph, bool reference) {
  int n = 0;
  for (const Op& op : graph.ops()) n += of_reference(op) == reference ? 1 : 0;
  return n;
}

TEST(Reference, is_every_block_and_the_head_once_more_over_the_same_weights) {
  const ModelSpec model = tiny();
  const Graph before = forward(model), after = add_reference(before);
  verify(after);
  // The table of positions, the embedding and the loss are shared.
  EXPECT_EQ(count(after, true), count(before, false) - 3);
  EXPECT_EQ(count(after, false), count(before, false));
  for (const Tensor& tensor : after.tensors())
    if (tensor.name.text().starts_with("reference.")) {
      EXPECT_EQ(tensor.role, Role::activation) << tensor.name.text();
    }
  const Op& loss = after.ops().back();
  EXPECT_EQ(after.tensor(loss.inputs[operand::preference_loss::reference]).name,
            "reference." + after.tensor(loss.inputs[operand::preference_loss::logps]).name.text());
  EXPECT_EQ(after.blocks(), before.blocks());
}

TEST(Reference, of_a_block_stands_right_before_the_block) {
  const ModelSpec model = tiny();
  const Graph graph = add_reference(forward(model));
  std::set<BlockId> begun;
  for (const Op& op : graph.ops()) {
    if (op.block == kNoBlock) continue;
    if (!of_reference(op)) begun.insert(op.block);
    if (of_reference(op)) {
      EXPECT_FALSE(begun.contains(op.block)) << op.scope.text();
    }
  }
  EXPECT_EQ(begun.size(), graph.blocks().size());
}

TEST(Reference, has_no_adapters_and_nothing_of_it_waits_for_a_backward_pass) {
  const ModelSpec model = tiny();
  const Graph adapted = add_lora(add_reference(forward(model)), {.r = 4, .dropout = 0.1});
  verify(adapted);
  int adapters = 0;
  for (const Op& op : adapted.ops()) {
    if (op.scope.text().find(".lora_") == std::string::npos) continue;
    EXPECT_FALSE(of_reference(op)) << op.scope.text();
    ++adapters;
  }
  EXPECT_EQ(adapters, 2 * 7 * 3);  // of two layers: dropout, A and B
  const Graph train = differentiate(adapted, {});
  for (const RecomputePoint point : {RecomputePoint::none, RecomputePoint::mlp, RecomputePoint::block}) {
    const Graph program = recompute(train, {std::vector(train.blocks().size(), point), 1});
    verify(program);
    for (const Op& op : program.ops()) {
      if (op.stage != Stage::backward) continue;
      EXPECT_FALSE(of_reference(op)) << op.scope.text();
      for (const TensorId id : op.inputs)
        if (id != kNoTensor && op.kind != OpKind::preference_loss_grad) {
          EXPECT_FALSE(program.tensor(id).name.text().starts_with("reference.")) << print_op(program, op);
        }
    }
  }
}

TEST(Reference, is_for_losses_that_ask_for_one) {
  const ModelSpec model = tiny();
  EXPECT_THROW(add_reference(add_reference(forward(model))), InternalError);
  EXPECT_THROW(add_reference(build_loss(model, {8, 2, 4}, DType::f32, 4, Mode::train, "loss")),
               InternalError);
}

TEST(Reference, begins_with_the_embeddings_as_they_are) {
  const Graph graph = add_lora(add_reference(add_noise(forward(tiny()), 5.0)),
                               {.r = 2, .targets = {"embed_tokens", "lm_head", "q_proj"}});
  verify(graph);
  std::set<TensorId> adapted;  // what an adapter changes
  for (const Op& op : graph.ops()) {
    bool changed = op.scope.text().find(".lora_") != std::string::npos;
    for (const TensorId id : op.inputs) changed = changed || adapted.contains(id);
    if (of_reference(op)) {
      EXPECT_FALSE(changed) << print_op(graph, op);
    } else if (changed) {
      adapted.insert(op.outputs.begin(), op.outputs.end());
    }
  }
  EXPECT_TRUE(adapted.contains(graph.ops().back().inputs.front()));
}

}  // namespace
}  // namespace plimsoll
