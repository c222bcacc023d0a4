#include "passes/recompute.h"
#include "graph/op_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "models/model.h"
#include "ops/rule.h"
#include "passes/train.h"

namespace plimsoll {
namespace {

using enum RecomputePoint;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

ModelSpec model(int64_t layers) {
  ModelSpec spec;
  spec.family = "llama";
  spec.architecture = "LlamaForCausalLM";
  spec.hidden = 16;
  spec.mlp_width = 48;
  spec.layers = layers;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.head_dim = 8;
  spec.vocab = 32;
  spec.max_positions = 4096;
  spec.windows.assign(static_cast<size_t>(layers), 0);
  return spec;
}

Graph full(int64_t layers) {
  const BatchShape shape{8, 1, 8};
  return differentiate(make_trainable(build_loss(model(layers), shape, DType::f32, 4, Mode::train, "loss")),
                       {});
}

Graph adapters(const LoraOptions& options, const ModelSpec& spec = model(2)) {
  return differentiate(add_lora(build_loss(spec, {8, 1, 8}, DType::f32, 4, Mode::train, "loss"), options),
                       {});
}

RecomputeChoice all(RecomputePoint point, int64_t layers, int64_t segment = 1) {
  return {std::vector(static_cast<size_t>(layers), point), segment};
}

bool is_repeated(const Graph& graph, const Op& op) {
  return op.outputs.front() != kNoTensor &&
         graph.tensor(op.outputs.front()).name.find(".re") != std::string::npos;
}

// "kind scope" -> how often it is recomputed, in one layer.
std::map<std::string, int> repeated(const Graph& graph, int32_t layer) {
  std::map<std::string, int> counts;
  const std::string prefix = "model.layers." + std::to_string(layer);
  for (const Op& op : graph.ops()) {
    if (!is_repeated(graph, op) || op.block != layer) continue;
    const std::string module = op.scope.substr(std::min(op.scope.size(), prefix.size() + 1));
    ++counts[std::string(to_string(op.kind)) + " " + module];
  }
  return counts;
}

TEST(RecomputePoints, are_read_by_their_names) {
  for (int p = 0; p < kNumRecomputePoints; ++p) {
    const auto point = static_cast<RecomputePoint>(p);
    EXPECT_EQ(parse_recompute_point(to_string(point)), point);
  }
  EXPECT_THROW(parse_recompute_point("ffn"), UsageError);
}

TEST(Recompute, without_a_choice_the_program_stays_as_it_is) {
  const Graph train = full(2);
  EXPECT_EQ(print_graph(recompute(train, {})), print_graph(train));
  EXPECT_EQ(print_graph(recompute(train, all(none, 2))), print_graph(train));
}

TEST(Recompute, each_point_repeats_what_it_drops_and_nothing_else) {
  const Graph train = full(2);
  EXPECT_THAT(repeated(recompute(train, all(act, 2)), 1), UnorderedElementsAre(Pair("swiglu mlp", 1)));
  std::map<std::string, int> expected = {
      {"swiglu mlp", 1}, {"rms_norm input_layernorm", 1}, {"rms_norm post_attention_layernorm", 1}};
  EXPECT_EQ(repeated(recompute(train, all(cheap, 2)), 1), expected);
  // Norms are repeated twice where a matrix product is: for it, and for the gradient of its weight.
  expected["linear mlp.gate_proj"] = expected["linear mlp.up_proj"] = 1;
  expected["rms_norm post_attention_layernorm"] = 2;
  EXPECT_EQ(repeated(recompute(train, all(mlp, 2)), 1), expected);
  for (const char* projection : {"q", "k", "v", "o"})
    expected["linear self_attn." + std::string(projection) + "_proj"] = 1;
  expected["rms_norm input_layernorm"] = 2;
  expected["rope self_attn"] = 2;
  expected["add "] = 1;
  EXPECT_EQ(repeated(recompute(train, all(attention, 2)), 1), expected);
  expected["attention self_attn"] = 1;
  EXPECT_EQ(repeated(recompute(train, all(block, 2)), 1), expected);
}

TEST(Recompute, values_are_computed_again_right_before_their_first_reader) {
  const Graph train = recompute(full(1), all(mlp, 1));
  std::vector<std::string> backward;
  for (const Op& op : train.ops())
    if (op.stage == Stage::backward && op.block == 0)
      backward.push_back(std::string(to_string(op.kind)) + (is_repeated(train, op) ? " again" : ""));
  EXPECT_THAT(backward,
              ElementsAre("rms_norm again", "linear again", "linear again", "swiglu again", "linear_dw",
                          "linear_dx", "swiglu_grad", "rms_norm again", "linear_dw", "linear_dx", "linear_dw",
                          "linear_dx", "rms_norm_grad", "linear_dw", "linear_dx", "attention_grad",
                          "rms_norm again", "linear_dw", "linear_dx", "rope", "linear_dw", "linear_dx",
                          "rope", "linear_dw", "linear_dx", "rms_norm_grad"));
}

TEST(Recompute, the_forward_pass_and_the_scopes_stay) {
  const Graph train = full(3);
  const Graph again = recompute(train, all(block, 3));
  verify(again);
  size_t i = 0;
  for (; train.ops()[i].stage == Stage::forward; ++i)
    EXPECT_EQ(print_op(train, train.ops()[i]), print_op(again, again.ops()[i]));
  EXPECT_EQ(again.ops()[i].stage, Stage::backward);
}

TEST(Recompute, adapters_follow_their_linears) {
  const LoraOptions options{.r = 4, .alpha = 8, .dropout = 0.1};
  const Graph train = adapters(options);
  const std::map<std::string, int> at_act = {{"swiglu mlp", 1}, {"dropout mlp.down_proj.lora_dropout", 1}};
  EXPECT_EQ(repeated(recompute(train, all(act, 2)), 1), at_act);
  // No matrix product is repeated, though dropout makes a copy of every linear's input.
  const auto at_cheap = repeated(recompute(train, all(cheap, 2)), 1);
  EXPECT_EQ(at_cheap.size(), 3U + 7U);
  for (const auto& [what, times] : at_cheap) {
    EXPECT_EQ(times, 1) << what;
    EXPECT_THAT(what, ::testing::Not(::testing::StartsWith("linear")));
  }
  const auto at_mlp = repeated(recompute(train, all(mlp, 2)), 1);
  EXPECT_EQ(at_mlp.at("linear mlp.gate_proj.lora_A"), 1);
  EXPECT_EQ(at_mlp.at("linear mlp.gate_proj.lora_B"), 1);
  EXPECT_EQ(at_mlp.at("linear mlp.down_proj.lora_A"), 1);
  EXPECT_FALSE(at_mlp.contains("linear mlp.down_proj.lora_B"));
  EXPECT_FALSE(at_mlp.contains("linear self_attn.q_proj.lora_A"));
}

TEST(Recompute, what_the_backward_pass_does_not_read_is_not_repeated) {
  const Graph train = adapters({.r = 4, .targets = {"q_proj", "v_proj"}});
  // The frozen MLP needs gate and up only, and its norm no more than the reciprocal deviations.
  EXPECT_THAT(repeated(recompute(train, all(act, 2)), 1), IsEmpty());
  EXPECT_THAT(repeated(recompute(train, all(cheap, 2)), 1),
              UnorderedElementsAre(Pair("rms_norm input_layernorm", 1)));
  EXPECT_FALSE(repeated(recompute(train, all(block, 2)), 1).contains("swiglu mlp"));
}

TEST(Recompute, norms_of_queries_and_keys_are_cheap) {
  ModelSpec spec = model(2);
  spec.qk_norm = true;
  const auto at_cheap = repeated(recompute(adapters({.r = 4}, spec), all(cheap, 2)), 1);
  EXPECT_EQ(at_cheap.at("rms_norm self_attn.q_norm"), 1);
  EXPECT_EQ(at_cheap.at("rope self_attn"), 2);
  EXPECT_FALSE(at_cheap.contains("linear self_attn.q_proj"));
}

TEST(Recompute, layers_may_differ) {
  const Graph train = recompute(full(3), {{block, none, act}, 1});
  EXPECT_EQ(repeated(train, 0).at("attention self_attn"), 1);
  EXPECT_THAT(repeated(train, 1), IsEmpty());
  EXPECT_THAT(repeated(train, 2), UnorderedElementsAre(Pair("swiglu mlp", 1)));
}

TEST(Recompute, a_segment_runs_forward_once_for_the_inputs_of_its_layers) {
  const Graph train = recompute(full(4), all(block, 4, 4));
  verify(train);
  for (int32_t layer = 0; layer < 3; ++layer) {
    const auto counts = repeated(train, layer);
    EXPECT_EQ(counts.at("linear mlp.gate_proj"), 2) << layer;
    EXPECT_EQ(counts.at("linear mlp.down_proj"), 1) << layer;
  }
  EXPECT_EQ(repeated(train, 3).at("linear mlp.gate_proj"), 1);
  EXPECT_FALSE(repeated(train, 3).contains("linear mlp.down_proj"));
}

TEST(Recompute, segments_begin_anew_after_a_layer_of_another_point) {
  const Graph train = recompute(full(5), {{block, block, none, block, block}, 2});
  EXPECT_TRUE(repeated(train, 0).contains("linear mlp.down_proj"));
  EXPECT_FALSE(repeated(train, 1).contains("linear mlp.down_proj"));
  EXPECT_TRUE(repeated(train, 3).contains("linear mlp.down_proj"));
}

TEST(Recompute, ops_of_no_block_are_left_alone) {
  Graph train = full(2);
  for (Op& op : train.ops()) op.block = kNoBlock;
  EXPECT_EQ(print_graph(recompute(train, all(block, 2))), print_graph(train));
}

TEST(Recompute, a_choice_for_fewer_layers_than_the_model_has_is_our_own_fault) {
  EXPECT_THROW(recompute(full(2), all(block, 1)), InternalError);
}

}  // namespace
}  // namespace plimsoll
