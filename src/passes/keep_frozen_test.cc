#include "passes/keep_frozen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "autodiff/autodiff.h"
#include "graph/op_kind.h"
#include "models/model.h"
#include "models/test_specs.h"
#include "ops/rule.h"
#include "passes/lora.h"
#include "passes/noise.h"
#include "passes/reference.h"
#include "passes/train.h"
#include "tasks/task.h"

namespace plimsoll {
namespace {

ModelSpec tiny(int64_t layers = 4) {
  return test_spec({.hidden = 16, .mlp = 24, .layers = layers, .heads = 2, .kv_heads = 1, .vocab = 32});
}

Graph forward() { return build_loss(tiny(), {8, 2, 4}, DType::bf16, 4, Mode::train, "loss"); }

Graph adapted(std::vector<int64_t> layers) {
  LoraOptions options{.r = 4, .alpha = 8};
  options.layers = std::move(layers);
  return add_lora(forward(), options);
}

std::set<BlockId> blocks_of(const Graph& graph) {
  std::set<BlockId> blocks;
  for (const Op& op : graph.ops())
    if (op.block != kNoBlock) blocks.insert(op.block);
  return blocks;
}

TEST(KeepFrozen, a_forward_pass_is_cut_below_the_first_block_that_trains) {
  const Graph whole = adapted({2, 3});
  ASSERT_TRUE(has_frozen_blocks(whole));
  const Graph above = begin_at_kept(whole), below = frozen_blocks(whole);
  verify(above);
  verify(below);
  EXPECT_EQ(blocks_of(below), (std::set<BlockId>{0, 1}));
  EXPECT_EQ(blocks_of(above), (std::set<BlockId>{2, 3}));
  EXPECT_EQ(above.tensor(above.find(kKeptTensor)).role, Role::input);
  EXPECT_EQ(below.ops().back().outputs.front(), below.find(kKeptTensor));
  // The table of positions is made in both, the embedding in the lower part alone.
  EXPECT_EQ(above.ops().size() + below.ops().size(), whole.ops().size() + 1);
  EXPECT_EQ(std::count_if(above.ops().begin(), above.ops().end(),
                          [](const Op& op) { return op.kind == OpKind::embedding; }),
            0);
}

TEST(KeepFrozen, what_is_above_has_the_same_backward_pass_and_homes_for_every_weight) {
  const Graph whole = adapted({1, 3});
  const Graph train = differentiate(begin_at_kept(whole), {}), usual = differentiate(whole, {});
  const auto backward = [](const Graph& graph) {
    return std::count_if(graph.ops().begin(), graph.ops().end(),
                         [](const Op& op) { return op.stage == Stage::backward; });
  };
  EXPECT_EQ(backward(train), backward(usual));
  for (const Tensor& tensor : usual.tensors()) {
    EXPECT_TRUE(!is_persistent(tensor.role) || train.find(tensor.name.text()) != kNoTensor) << tensor.name;
  }
}

TEST(KeepFrozen, a_head_that_trains_alone_has_all_blocks_below_it) {
  const Graph whole = make_trainable(forward(), {"model"});
  ASSERT_TRUE(has_frozen_blocks(whole));
  EXPECT_TRUE(blocks_of(begin_at_kept(whole)).empty());
  EXPECT_EQ(blocks_of(frozen_blocks(whole)).size(), 4U);
}

TEST(KeepFrozen, nothing_is_kept_where_the_first_block_or_the_embedding_trains) {
  EXPECT_FALSE(has_frozen_blocks(adapted({})));
  EXPECT_FALSE(has_frozen_blocks(adapted({0})));
  EXPECT_FALSE(has_frozen_blocks(make_trainable(forward(), {"model.layers"})));
}

TEST(KeepFrozen, nothing_is_kept_of_what_draws_at_random) {
  LoraOptions options{.r = 4, .alpha = 8};
  options.layers = {2};
  EXPECT_FALSE(has_frozen_blocks(add_lora(add_noise(forward(), 5.0), options)));
}

TEST(KeepFrozen, nothing_is_kept_where_a_reference_runs_beside) {
  Graph pair = rule_of(Task::dpo).loss({{.task = Task::dpo}, tiny(), {16, 4, 4}, DType::f32, 4, "loss", ""});
  LoraOptions options{.r = 4, .alpha = 8};
  options.layers = {3};
  EXPECT_TRUE(has_frozen_blocks(add_lora(pair, options)));
  EXPECT_FALSE(has_frozen_blocks(add_lora(add_reference(pair), options)));
}

}  // namespace
}  // namespace plimsoll
