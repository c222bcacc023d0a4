#include "passes/quantise.h"
#include "graph/op_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "models/model.h"
#include "models/test_specs.h"
#include "ops/operands.h"
#include "ops/rule.h"
#include "passes/lora.h"

namespace plimsoll {
namespace {

ModelSpec tiny() { return test_spec({.hidden = 16, .mlp = 24, .heads = 2, .kv_heads = 1, .vocab = 32}); }

Graph adapted(DType dtype = DType::bf16) {
  return add_lora(build_loss(tiny(), {8, 2, 4}, dtype, 4, Mode::train, "loss"),
                  {.r = 4, .targets = {"q_proj"}});
}

const Tensor& named(const Graph& graph, const std::string& name) {
  const TensorId id = graph.find(name);
  EXPECT_NE(id, kNoTensor) << name;
  return graph.tensor(id);
}

int count(const Graph& graph, OpKind kind) {
  int n = 0;
  for (const Op& op : graph.ops()) n += op.kind == kind ? 1 : 0;
  return n;
}

TEST(Quantise, every_linear_layer_reads_a_weight_made_right_before_it) {
  const Graph graph = quantise(adapted(), {});
  verify(graph);
  EXPECT_EQ(count(graph, OpKind::nf4_dequantize), 14);
  for (size_t i = 0; i + 1 < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    if (op.kind != OpKind::nf4_dequantize) continue;
    EXPECT_EQ(graph.ops()[i + 1].input(operand::linear::weight), op.outputs[operand::nf4_dequantize::weight])
        << print_op(graph, op);
    EXPECT_EQ(graph.tensor(op.outputs[operand::nf4_dequantize::weight]).dtype, DType::bf16);
  }
}

TEST(Quantise, a_weight_becomes_four_bits_a_scale_each_64_and_a_scale_of_those_each_256) {
  const Graph graph = quantise(adapted(), {});
  const std::string name = "model.layers.0.mlp.gate_proj.weight";
  EXPECT_EQ(named(graph, name).shape, (Shape{24, 8}));
  EXPECT_EQ(named(graph, name).dtype, DType::u8);
  EXPECT_EQ(named(graph, name + ".absmax").shape, (Shape{6}));
  EXPECT_EQ(named(graph, name + ".absmax").dtype, DType::u8);
  EXPECT_EQ(named(graph, name + ".nested_absmax").shape, (Shape{1}));
  EXPECT_EQ(named(graph, name + ".nested_quant_map").shape, (Shape{256}));
  EXPECT_EQ(named(graph, name + ".absmax").parameter.origin, Origin::derived);
  EXPECT_EQ(named(graph, name + ".absmax").block, named(graph, name).block);
  EXPECT_EQ(named(graph, name).parameter.origin, Origin::checkpoint);
}

TEST(Quantise, without_double_quantisation_the_scales_are_f32) {
  const Graph graph = quantise(adapted(), {.nested = false});
  verify(graph);
  EXPECT_EQ(named(graph, "model.layers.0.mlp.gate_proj.weight.absmax").dtype, DType::f32);
  EXPECT_EQ(graph.find("model.layers.0.mlp.gate_proj.weight.nested_absmax"), kNoTensor);
}

TEST(Quantise, in_8_bits_a_weight_keeps_its_shape_and_has_a_scale_for_each_row) {
  const Graph graph = quantise(adapted(), {.format = WeightFormat::int8});
  verify(graph);
  EXPECT_EQ(count(graph, OpKind::int8_dequantize), 14);
  EXPECT_EQ(count(graph, OpKind::nf4_dequantize), 0);
  const std::string module = "model.layers.0.mlp.gate_proj";
  EXPECT_EQ(named(graph, module + ".weight").shape, (Shape{24, 16}));
  EXPECT_EQ(named(graph, module + ".weight").dtype, DType::i8);
  EXPECT_EQ(named(graph, module + ".SCB").shape, (Shape{24}));
  EXPECT_EQ(named(graph, module + ".SCB").dtype, DType::f32);
  EXPECT_EQ(named(graph, module + ".SCB").parameter.origin, Origin::derived);
  EXPECT_EQ(named(graph, module + ".SCB").block, named(graph, module + ".weight").block);
  EXPECT_EQ(named(graph, module + ".weight.dequantized").dtype, DType::bf16);
  EXPECT_EQ(graph.find(module + ".weight.absmax"), kNoTensor);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"})
    EXPECT_EQ(named(graph, name).dtype, DType::bf16) << name;
}

TEST(Quantise, in_8_bits_an_odd_number_of_inputs_is_fine_and_a_row_beyond_the_staging_is_not) {
  ModelSpec spec = tiny();
  spec.mlp_width = 23;
  verify(quantise(build_loss(spec, {8, 2, 4}, DType::f32, 4, Mode::train, "loss"),
                  {.format = WeightFormat::int8}));
  spec.mlp_width = (int64_t{1} << 20) + 1;
  try {
    quantise(build_loss(spec, {8, 2, 4}, DType::f32, 4, Mode::train, "loss"), {.format = WeightFormat::int8});
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("model.layers.0.mlp.down_proj.weight is [16,1048577]"));
  }
}

TEST(Quantise, embeddings_head_norms_and_adapters_stay_as_they_are) {
  const Graph graph = quantise(adapted(), {});
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
                           "model.layers.1.self_attn.q_proj.lora_A.weight"})
    EXPECT_EQ(named(graph, name).dtype, DType::bf16) << name;
}

TEST(Quantise, modules_that_are_kept_by_the_ends_of_their_names_stay_whole) {
  const QuantiseOptions options{.kept = {"down_proj", "layers.1.self_attn.q_proj"}};
  const Graph graph = quantise(adapted(), options);
  verify(graph);
  EXPECT_EQ(count(graph, OpKind::nf4_dequantize), 14 - 3);
  for (const char* name : {"model.layers.0.mlp.down_proj.weight", "model.layers.1.mlp.down_proj.weight",
                           "model.layers.1.self_attn.q_proj.weight"})
    EXPECT_EQ(named(graph, name).dtype, DType::bf16) << name;
  EXPECT_EQ(named(graph, "model.layers.0.self_attn.q_proj.weight").dtype, DType::u8);
  EXPECT_FALSE(options.blocks_are_alike());
  EXPECT_TRUE((QuantiseOptions{.kept = {"down_proj", "mlp.up_proj", "attn.gk_proj.0"}}).blocks_are_alike());
  // An end of a part is not an end of the name.
  EXPECT_EQ(count(quantise(adapted(), {.kept = {"proj"}}), OpKind::nf4_dequantize), 14);
}

TEST(Quantise, only_adapters_have_gradients) {
  const Graph train = differentiate(quantise(adapted(), {}), {});
  verify(train);
  EXPECT_EQ(count(train, OpKind::linear_dw), 4);
  for (const Tensor& tensor : train.tensors()) {
    EXPECT_TRUE(tensor.role != Role::gradient || tensor.name.find(".lora_") != std::string::npos)
        << tensor.name;
  }
}

TEST(Quantise, a_weight_with_an_odd_number_of_inputs_is_refused_by_name) {
  ModelSpec spec = tiny();
  spec.mlp_width = 23;
  try {
    quantise(build_loss(spec, {8, 2, 4}, DType::f32, 4, Mode::train, "loss"), {});
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("model.layers.0.mlp.down_proj.weight [16,23]"));
  }
}

}  // namespace
}  // namespace plimsoll
