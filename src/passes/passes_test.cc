#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "graph/op_kind.h"
#include "models/model.h"
#include "models/test_specs.h"
#include "ops/rule.h"
#include "passes/train.h"

namespace plimsoll {
namespace {

ModelSpec tiny() { return test_spec({.hidden = 16, .mlp = 24, .heads = 2, .kv_heads = 1, .vocab = 32}); }

Graph forward(DType dtype = DType::f32) {
  return build_loss(tiny(), {8, 2, 4}, dtype, 4, Mode::train, "loss");
}

int count(const Graph& graph, OpKind kind) {
  int n = 0;
  for (const Op& op : graph.ops()) n += op.kind == kind ? 1 : 0;
  return n;
}

TEST(Lora, all_linear_adapts_seven_layers_a_block_and_trains_nothing_else) {
  const Graph train = differentiate(add_lora(forward(), {.r = 4, .alpha = 8}), {});
  verify(train);
  std::vector<std::string> adapters;
  for (const Tensor& tensor : train.tensors())
    if (tensor.role == Role::trainable_weight) adapters.push_back(tensor.name);
  EXPECT_EQ(adapters.size(), 2 * 14U);
  EXPECT_EQ(adapters[0], "model.layers.0.self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(count(train, OpKind::linear_dw), 28);
  EXPECT_EQ(count(train, OpKind::embedding_dw), 0);
}

TEST(Lora, a_frozen_linear_keeps_no_input_for_backward) {
  const Graph train = differentiate(add_lora(forward(), {.r = 4, .targets = {"q_proj", "v_proj"}}), {});
  // The MLP's activations feed no trainable weight: swiglu's output is read by down_proj and by nothing
  // later.
  const TensorId s = train.find("model.layers.1.mlp.act");
  int readers = 0;
  for (const Op& op : train.ops())
    for (const TensorId id : op.inputs) readers += id == s ? 1 : 0;
  EXPECT_EQ(readers, 1);
}

// Two axes; each has a linear layer and inputs of its own.
Graph two_axes() {
  return parse_graph(
      "graph two\n"
      "axis 1 source\n"
      "tensor step f64[16] input\n"
      "tensor x f32[6,8] input\n"
      "tensor positions i32[6] input\n"
      "tensor samples i32[6] input\n"
      "tensor source.x f32[9,8] input\n"
      "tensor source.positions i32[9] input\n"
      "tensor source.samples i32[9] input\n"
      "tensor a.weight f32[8,8] frozen\n"
      "tensor b.weight f32[8,8] frozen\n"
      "y f32[6,8] = linear(x, a.weight, -, -, step) {scale=1.0} @a forward\n"
      "z f32[9,8] = linear(source.x, b.weight, -, -, step) {scale=1.0} @b forward axis=1\n");
}

TEST(Lora, an_adapter_is_on_the_axis_of_its_layer) {
  const Graph graph = add_lora(two_axes(), {.r = 2, .dropout = 0.1});
  verify(graph);
  std::map<std::string, int> seen;
  for (const Op& op : graph.ops()) {
    const bool second = op.scope.starts_with("b");
    EXPECT_EQ(op.axis, second ? 1 : 0) << op.scope;
    ++seen[op.scope];
    if (op.kind != OpKind::dropout) continue;
    EXPECT_EQ(graph.tensor(op.inputs[1]).name, second ? "source.samples" : "samples");
    EXPECT_EQ(graph.tensor(op.inputs[2]).name, second ? "source.positions" : "positions");
  }
  EXPECT_EQ(seen.size(), 8U);  // a layer, its dropout, A and B; twice
}

TEST(Verify, rows_of_another_axis_are_refused) {
  Graph graph = parse_graph(print_graph(two_axes()));
  Op op = graph.ops().back();
  op.inputs[0] = graph.ops().front().outputs[0];  // rows of the first axis
  op.outputs[0] = graph.add_tensor({"w", {6, 8}, DType::f32, Role::activation});
  graph.ops().push_back(op);
  EXPECT_THROW(verify(graph), InternalError);
  graph.ops().back().axis = kFirstAxis;
  EXPECT_NO_THROW(verify(graph));
  graph.ops().back().axis = 2;
  EXPECT_THROW(verify(graph), InternalError);
}

TEST(Lora, a_target_that_names_nothing_is_refused) {
  EXPECT_THROW(add_lora(forward(), {.targets = {"c_attn"}}), UsageError);
}

TEST(Update, every_trainable_weight_is_updated_once_and_norms_do_not_decay) {
  const Graph train = differentiate(make_trainable(forward(DType::bf16)), {});
  const Graph update =
      build_update(train, {DType::bf16, DType::f32, DType::f32, true, false}, {.weight_decay = 0.1});
  verify(update);
  EXPECT_EQ(count(update, OpKind::adamw), 2 * 9 + 3);
  for (const Op& op : update.ops()) {
    if (op.kind != OpKind::adamw) continue;
    EXPECT_EQ(op.attr_float("weight_decay"), op.scope.find("norm") == std::string::npos ? 0.1 : 0.0)
        << op.scope;
    ASSERT_TRUE(op.has_output(3)) << op.scope;
    const Tensor& weight = train.tensor(train.find(op.scope));
    for (const TensorId id : op.outputs) EXPECT_EQ(update.tensor(id).block, weight.block) << op.scope;
    EXPECT_EQ(update.tensor(op.outputs[3]).parameter, weight.parameter) << op.scope;
  }
}

// The update's op of a weight under an optimizer; every weight of the tiny model trains.
Op update_of(const std::string& weight, const OptimizerOptions& options, const Graph& update) {
  for (const Op& op : update.ops())
    if (op.scope == weight && op.kind != OpKind::grad_square) return op;
  ADD_FAILURE() << weight << " is not updated by " << static_cast<int>(options.kind);
  return {};
}

TEST(Update, states_are_those_of_the_optimizer_and_named_after_the_weight) {
  const Graph train = differentiate(make_trainable(forward()), {});
  const std::string matrix = "model.layers.1.mlp.up_proj.weight";  // [24,16]
  const std::string vector = "model.norm.weight";
  const auto states = [&](const OptimizerOptions& options, const std::string& weight) {
    const Graph update = build_update(train, {}, options);
    verify(update);
    std::vector<std::string> names;
    for (const TensorId id : update_of(weight, options, update).outputs)
      if (id != kNoTensor && update.tensor(id).role == Role::optimizer_state)
        names.push_back(update.tensor(id).name.substr(weight.size()) + " " +
                        std::to_string(update.tensor(id).shape.elements()));
    return names;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(states({}, matrix), ElementsAre(".exp_avg 384", ".exp_avg_sq 384"));
  EXPECT_THAT(states({.kind = OptimizerKind::lion}, matrix), ElementsAre(".exp_avg 384"));
  EXPECT_THAT(states({.kind = OptimizerKind::sgd}, matrix), ElementsAre());
  EXPECT_THAT(states({.kind = OptimizerKind::sgd, .momentum = 0.9}, matrix),
              ElementsAre(".momentum_buffer 384"));
  EXPECT_THAT(states({.kind = OptimizerKind::adafactor}, matrix),
              ElementsAre(".exp_avg_sq_row 24", ".exp_avg_sq_col 16"));
  EXPECT_THAT(states({.kind = OptimizerKind::adafactor}, vector), ElementsAre(".exp_avg_sq 16"));
}

TEST(Update, adamw8bit_keeps_small_weights_and_embeddings_in_32_bits) {
  ModelSpec spec = tiny();
  spec.vocab = 512;  // the embedding and the head have 8192 elements, no other weight has 4096
  const Graph train =
      differentiate(make_trainable(build_loss(spec, {8, 2, 4}, DType::f32, 4, Mode::train, "loss")), {});
  const OptimizerOptions options = {.kind = OptimizerKind::adamw8bit};
  const Graph update = build_update(train, {}, options);
  verify(update);
  EXPECT_EQ(count(update, OpKind::adamw8bit), 1);
  const Op head = update_of("lm_head.weight", options, update);
  EXPECT_EQ(head.kind, OpKind::adamw8bit);
  EXPECT_EQ(update.tensor(head.outputs[1]).dtype, DType::u8);
  EXPECT_EQ(update.tensor(head.outputs[3]).shape, (Shape{32}));
  EXPECT_EQ(update_of("model.embed_tokens.weight", options, update).kind, OpKind::adamw);
}

TEST(Scratch, every_op_that_asks_gets_a_workspace) {
  DeviceDescription device = reference_description();
  device.matmul_scratch_bytes = [](const MatmulShape&) { return int64_t{1000}; };
  const Graph graph = assign_scratch(forward(), device);
  for (const Op& op : graph.ops()) {
    if (op.kind != OpKind::linear) continue;
    EXPECT_EQ(graph.tensor(op.scratch).bytes(), 1000);
  }
}

}  // namespace
}  // namespace plimsoll
