#include "passes/pipeline.h"
#include "graph/op_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "models/model.h"
#include "models/test_specs.h"
#include "ops/rule.h"
#include "tasks/task.h"

namespace plimsoll {
namespace {

ModelSpec model() { return test_spec({.hidden = 64, .mlp = 128, .layers = 3, .heads = 2, .kv_heads = 1}); }

Graph forward() { return build_loss(model(), {32, 1, 32}, DType::bf16, 16, Mode::train, "loss"); }

int count(const Graph& graph, OpKind kind) {
  int n = 0;
  for (const Op& op : graph.ops()) n += op.kind == kind ? 1 : 0;
  return n;
}

TEST(Pipeline, passes_stand_in_the_order_of_their_numbers_with_names_and_reasons) {
  std::set<std::string_view> names;
  size_t number = 0;
  for (const Pass& pass : passes()) {
    EXPECT_EQ(static_cast<size_t>(pass.id), number++) << pass.name;
    EXPECT_TRUE(names.insert(pass.name).second) << pass.name;
    EXPECT_FALSE(pass.place.empty()) << pass.name;
    EXPECT_EQ(find_pass(pass.name), &pass);
  }
  EXPECT_EQ(passes().front().id, kFirstPass);
  EXPECT_EQ(passes().back().id, kLastPass);
  EXPECT_EQ(find_pass("nonsense"), nullptr);
}

TEST(Pipeline, what_runs_is_verified_and_what_is_only_measured_is_not) {
  const DeviceDescription device = reference_description();
  PassContext context;
  context.device = &device;
  Graph backwards = forward();
  std::reverse(backwards.ops().begin(), backwards.ops().end());
  EXPECT_THROW(run_passes(backwards, context), InternalError);
  context.runs = false;
#ifdef PLIMSOLL_VERIFY_PASSES
  EXPECT_THROW(run_passes(backwards, context), InternalError);
#else
  EXPECT_NO_THROW(run_passes(backwards, context));
#endif
}

// Full, LoRA and QLoRA, with everything that a variant may do: run_passes verifies if it has an observer.
TEST(Pipeline, every_pass_leaves_programs_that_verify) {
  const DeviceDescription device = reference_description();
  const LoraOptions lora{.r = 4, .alpha = 8, .dropout = 0.1};
  const QuantiseOptions nf4;
  std::map<PassId, int> seen;
  const AfterPass watch = [&](const Pass& pass, const Graph& graph) {
    ++seen[pass.id];
    EXPECT_EQ(graph.blocks().size(), 3U) << pass.name;
  };
  for (const int method : {0, 1, 2}) {
    for (const bool moves : {false, true}) {
      for (const bool in_backward : {false, true}) {
        PassContext context;
        context.device = &device;
        context.lora = method > 0 ? &lora : nullptr;
        context.quantisation = method > 1 ? &nf4 : nullptr;
        context.noise = method > 1 ? 5.0 : 0.0;
        const TrainPrecision full{DType::bf16, DType::f32, DType::f32, true, false};
        context.precision = method > 0 ? adapter_precision(full) : full;
        context.precision.tf32 = moves;
        context.optimizer.max_grad_norm = in_backward ? 0.0 : 1.0;
        context.recompute = {{RecomputePoint::block, RecomputePoint::block, RecomputePoint::cheap}, 2};
        context.update_in_backward = in_backward;
        if (moves) context.sharding = {2, ShardStage::weights, method > 0};
        if (moves) {
          context.offload.states = context.offload.weights = context.offload.activations = Space::disk;
          context.offload.gradients = in_backward ? Space::device : Space::disk;
          context.offload.smallest_bytes = 256;
        }
        context.purpose = Purpose::train;
        Graph train = run_passes(forward(), context, kFirstPass, PassId::recompute, watch);
        context.purpose = Purpose::update;
        run_passes(build_update(train, context.precision, context.optimizer, context.sharding), context,
                   kFirstPass, kLastPass, watch);
        context.purpose = Purpose::train;
        run_passes(std::move(train), context, PassId::reduce_gradients, kLastPass, watch);
        context.purpose = Purpose::evaluate;
        run_passes(forward(), context, kFirstPass, kLastPass, watch);
      }
    }
  }
  PassContext context;
  context.device = &device;
  context.lora = &lora;
  context.reference = true;
  context.purpose = Purpose::train;
  context.recompute = {std::vector(3, RecomputePoint::block), 2};
  context.offload.weights = context.offload.activations = Space::disk;
  context.offload.smallest_bytes = 256;
  const ModelSpec spec = model();
  Graph preference =
      rule_of(Task::dpo).loss({{.task = Task::dpo}, spec, {16, 4, 4}, DType::f32, 4, "loss", ""});
  run_passes(std::move(preference), context, kFirstPass, kLastPass, watch);
  LoraOptions last_layer = lora;
  last_layer.layers = {2};
  context.lora = &last_layer;
  context.reference = false;
  context.keep_frozen = true;
  run_passes(forward(), context, kFirstPass, kLastPass, watch);
  for (const Pass& pass : passes()) EXPECT_GT(seen[pass.id], 0) << pass.name;
}

TEST(Pipeline, a_program_that_a_pass_leaves_broken_names_the_pass) {
  Graph graph = forward();
  std::swap(graph.ops()[3], graph.ops()[4]);
  graph.ops().pop_back();
  std::swap(graph.ops().front(), graph.ops().back());
  const LoraOptions lora;
  PassContext context;
  context.lora = &lora;
  try {
    run_passes(graph, context, kFirstPass, PassId::adapters, [](const Pass&, const Graph&) {});
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("after pass adapters: "));
  }
  const DeviceDescription device = reference_description();
  context.device = &device;
  context.lora = nullptr;
  EXPECT_THROW(run_passes(graph, context), InternalError);
}

TEST(Pipeline, only_training_drops_at_random) {
  const LoraOptions lora{.r = 4, .dropout = 0.1};
  PassContext context;
  context.lora = &lora;
  for (const Purpose purpose : {Purpose::evaluate, Purpose::generate}) {
    context.purpose = purpose;
    EXPECT_EQ(count(run_passes(forward(), context, kFirstPass, PassId::quantise), OpKind::dropout), 0);
  }
  context.purpose = Purpose::train;
  EXPECT_EQ(count(run_passes(forward(), context, kFirstPass, PassId::quantise), OpKind::dropout), 3 * 7);
}

}  // namespace
}  // namespace plimsoll
