#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "graph/op_kind.h"
#include "models/model.h"
#include "models/test_specs.h"
#include "ops/operands.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "passes/lora.h"
#include "passes/noise.h"
#include "passes/reduce_gradients.h"
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
    EXPECT_EQ(graph.tensor(op.inputs[operand::dropout::samples]).name, second ? "source.samples" : "samples");
    EXPECT_EQ(graph.tensor(op.inputs[operand::dropout::positions]).name,
              second ? "source.positions" : "positions");
  }
  EXPECT_EQ(seen.size(), 8U);  // a layer, its dropout, A and B; twice
}

TEST(Verify, rows_of_another_axis_are_refused) {
  Graph graph = parse_graph(print_graph(two_axes()));
  Op op = graph.ops().back();
  op.inputs.front() = graph.ops().front().outputs.front();  // rows of the first axis
  op.outputs.front() = graph.add_tensor({"w", {6, 8}, DType::f32, Role::activation});
  graph.ops().push_back(op);
  EXPECT_THROW(verify(graph), InternalError);
  graph.ops().back().axis = kFirstAxis;
  EXPECT_NO_THROW(verify(graph));
  graph.ops().back().axis = 2;
  EXPECT_THROW(verify(graph), InternalError);
}

std::vector<std::string> trainables(const Graph& graph) {
  std::vector<std::string> names;
  for (const Tensor& tensor : graph.tensors())
    if (tensor.role == Role::trainable_weight) names.push_back(tensor.name);
  return names;
}

Shape shape_of(const Graph& graph, const char* name) { return graph.tensor(graph.find(name)).shape; }

TEST(Lora, the_first_pattern_that_matches_a_name_gives_rank_and_alpha) {
  const Graph graph =
      add_lora(forward(), {.r = 4,
                           .alpha = 8,
                           .targets = {"q_proj", "v_proj"},
                           .rank_pattern = {{"layers\\.1\\..*", 2}, {"q_proj", 3}, {"layers\\.1", 7}},
                           .alpha_pattern = {{"v_proj", 1}}});
  EXPECT_EQ(shape_of(graph, "model.layers.0.self_attn.q_proj.lora_A.weight")[0], 3);
  EXPECT_EQ(shape_of(graph, "model.layers.0.self_attn.v_proj.lora_A.weight")[0], 4);
  EXPECT_EQ(shape_of(graph, "model.layers.1.self_attn.q_proj.lora_B.weight")[1], 2);
  std::map<std::string, double> scales;
  for (const Op& op : graph.ops())
    if (op.scope.find("lora_B") != std::string::npos) scales[op.scope] = op.attr_float("scale");
  EXPECT_EQ(scales["model.layers.0.self_attn.q_proj.lora_B"], 8.0 / 3);
  EXPECT_EQ(scales["model.layers.1.self_attn.v_proj.lora_B"], 1.0 / 2);
  EXPECT_THROW(add_lora(forward(), {.rank_pattern = {{"(q", 2}}}), UsageError);
  EXPECT_THROW(add_lora(forward(), {.rank_pattern = {{"([a-z._]+)+[0-9]{3}", 2}}}), UsageError);
}

TEST(Lora, adapters_of_some_layers_only) {
  const Graph graph = add_lora(forward(), {.r = 4, .targets = {"q_proj"}, .layers = {1}});
  EXPECT_THAT(trainables(graph), testing::ElementsAre("model.layers.1.self_attn.q_proj.lora_A.weight",
                                                      "model.layers.1.self_attn.q_proj.lora_B.weight"));
  EXPECT_EQ(trainables(add_lora(forward(), {.layers = {0}, .layers_pattern = {"layers"}})).size(), 14U);
  EXPECT_THROW(add_lora(forward(), {.layers = {2}}), UsageError);
  EXPECT_THROW(add_lora(forward(), {.layers = {0}, .layers_pattern = {"block"}}), UsageError);
}

TEST(Lora, modules_that_are_saved_train_whole_and_get_no_adapter) {
  const Graph graph =
      add_lora(forward(), {.targets = {"q_proj"}, .modules_to_save = {"model.norm", "1.mlp"}});
  EXPECT_THAT(trainables(graph),
              testing::IsSupersetOf({"model.norm.weight", "model.layers.1.mlp.up_proj.weight",
                                     "model.layers.0.self_attn.q_proj.lora_A.weight"}));
  const Graph all = add_lora(forward(), {.modules_to_save = {"down_proj"}});
  EXPECT_EQ(all.find("model.layers.0.mlp.down_proj.lora_A.weight"), kNoTensor);
  EXPECT_THROW(add_lora(forward(), {.modules_to_save = {"score"}}), UsageError);
}

TEST(Lora, a_head_that_is_saved_is_parted_from_the_embedding) {
  ModelSpec spec = tiny();
  spec.tied_head = true;
  const Graph tied = build_loss(spec, {8, 2, 4}, DType::f32, 4, Mode::train, "loss");
  EXPECT_EQ(tied.find("lm_head.weight"), kNoTensor);
  const auto role = [](const Graph& graph, const char* name) { return graph.tensor(graph.find(name)).role; };
  const Graph head = add_lora(tied, {.targets = {"q_proj"}, .modules_to_save = {"lm_head"}});
  EXPECT_EQ(role(head, "lm_head.weight"), Role::trainable_weight);
  EXPECT_EQ(role(head, "model.embed_tokens.weight"), Role::frozen_weight);
  const Graph table = add_lora(tied, {.targets = {"q_proj"}, .modules_to_save = {"embed_tokens"}});
  EXPECT_EQ(role(table, "lm_head.weight"), Role::frozen_weight);
  EXPECT_EQ(role(table, "model.embed_tokens.weight"), Role::trainable_weight);
  EXPECT_EQ(add_lora(tied, {.modules_to_save = {"model.norm"}}).find("lm_head.weight"), kNoTensor);
}

TEST(Lora, embeddings_and_the_head_are_adapted_where_they_are_named) {
  const Graph graph =
      add_lora(forward(), {.r = 4, .alpha = 8, .targets = {"embed_tokens", "lm_head", "q_proj"}});
  verify(graph);
  const auto shape = [&](const char* name) { return graph.tensor(graph.find(name)).shape; };
  EXPECT_EQ(shape("model.embed_tokens.lora_embedding_A"), (Shape{32, 4}));
  EXPECT_EQ(shape("model.embed_tokens.lora_embedding_B"), (Shape{16, 4}));
  EXPECT_EQ(shape("lm_head.lora_A.weight"), (Shape{4, 16}));
  EXPECT_EQ(shape("lm_head.lora_B.weight"), (Shape{32, 4}));
  EXPECT_EQ(graph.ops().back().inputs.size(), 6U);
  const Graph train = differentiate(graph, {});
  for (const char* name :
       {"model.embed_tokens.lora_embedding_A", "lm_head.lora_A.weight", "lm_head.lora_B.weight"})
    EXPECT_NE(train.find(std::string(name) + ".grad"), kNoTensor) << name;
  EXPECT_EQ(train.find("lm_head.weight.grad"), kNoTensor);
  const Graph all = add_lora(forward(), {.targets = {"all-linear", "lm_head"}});
  EXPECT_NE(all.find("model.layers.1.mlp.up_proj.lora_A.weight"), kNoTensor);
  EXPECT_NE(all.find("lm_head.lora_A.weight"), kNoTensor);
  EXPECT_EQ(all.find("model.embed_tokens.lora_embedding_A"), kNoTensor);
  EXPECT_EQ(add_lora(forward(), {}).find("lm_head.lora_A.weight"), kNoTensor);
  EXPECT_THROW(add_lora(forward(), {.dora = true, .targets = {"lm_head"}}), UsageError);
  EXPECT_THROW(add_lora(forward(), {.targets = {"embed_tokens"}, .start = AdapterStart::pissa}), UsageError);
}

TEST(Dora, has_a_magnitude_in_f32_that_no_master_copies) {
  const Graph train =
      differentiate(add_lora(forward(DType::bf16), {.r = 4, .dora = true, .targets = {"q_proj"}}), {});
  verify(train);
  const Tensor& magnitude = train.tensor(train.find("model.layers.0.self_attn.q_proj.lora_magnitude_vector"));
  EXPECT_EQ(magnitude.dtype, DType::f32);
  EXPECT_EQ(count(train, OpKind::dora_norm), 2);
  EXPECT_EQ(count(train, OpKind::dora_scale_grad), 2);
  const Graph update = build_update(train, {DType::bf16, DType::f32, DType::f32, true, false}, {});
  EXPECT_NE(update.find("model.layers.0.self_attn.q_proj.lora_A.weight.master"), kNoTensor);
  EXPECT_EQ(update.find(magnitude.name + ".master"), kNoTensor);
}

TEST(Dora, with_dropout_the_base_multiplies_what_is_dropped_too) {
  const Graph train =
      differentiate(add_lora(forward(), {.dropout = 0.1, .dora = true, .targets = {"q_proj"}}), {});
  verify(train);
  int products = 0;
  for (const Op& op : train.ops())
    products += op.kind == OpKind::linear && op.scope.ends_with("q_proj.lora_base") ? 1 : 0;
  EXPECT_EQ(products, 2);
  EXPECT_EQ(count(train, OpKind::scale), 1);  // nothing before the first block trains
}

TEST(LoraPlus, gives_b_and_vectors_their_own_rate) {
  const Graph train = differentiate(
      add_lora(forward(), {.dora = true, .targets = {"q_proj"}, .modules_to_save = {"model.norm"}}), {});
  OptimizerOptions options;
  options.adapter_out_ratio = 16;
  const Graph update = build_update(train, {}, options);
  for (const Op& op : update.ops()) {
    if (op.kind != OpKind::adamw) continue;
    const bool usual = op.scope.ends_with("lora_A.weight");
    EXPECT_EQ(op.attrs.contains("rate"), !usual) << op.scope;
    EXPECT_EQ(usual ? 16 : op.attr_float("rate"), 16);
  }
}

TEST(Frozen, parts_have_no_gradient_no_states_and_no_backward_pass_below_what_trains) {
  const Graph train = differentiate(make_trainable(forward(), {"embed_tokens", "layers\\.0", "norm"}), {});
  verify(train);
  for (const Tensor& tensor : train.tensors())
    EXPECT_FALSE(tensor.role == Role::gradient && tensor.name.text().find("layers.0.") != std::string::npos)
        << tensor.name;
  EXPECT_EQ(train.find("model.norm.weight.grad"), kNoTensor);
  EXPECT_NE(train.find("model.layers.1.input_layernorm.weight.grad"),
            kNoTensor);  // its last part is another word
  for (const Op& op : train.ops())
    EXPECT_FALSE(op.stage == Stage::backward && op.scope.starts_with("model.layers.0")) << op.scope;
  const Graph update = build_update(train, {}, {});
  EXPECT_EQ(update.find("model.embed_tokens.weight"), kNoTensor);
  EXPECT_NE(update.find("lm_head.weight"), kNoTensor);
  EXPECT_EQ(trainables(make_trainable(forward(), {"^(?!(?:lm_head)).*"})),
            std::vector<std::string>{"lm_head.weight"});
  EXPECT_THROW(make_trainable(forward(), {"encoder"}), UsageError);
  EXPECT_THROW(make_trainable(forward(), {"(model"}), UsageError);
  EXPECT_THROW(make_trainable(forward(), {".*"}), UsageError);
}

TEST(Noise, is_added_to_what_reads_the_embeddings_of_tokens) {
  const Graph noisy = add_noise(forward(), 5.0);
  verify(noisy);
  ASSERT_EQ(count(noisy, OpKind::embedding_noise), 1);
  const TensorId h = noisy.find("model.embed_tokens.out");
  for (const Op& op : noisy.ops())
    if (op.kind == OpKind::embedding_noise) {
      EXPECT_EQ(op.outputs.front(), h);
      EXPECT_EQ(op.attr_float("alpha"), 5.0);
    }
}

TEST(Lora, a_target_that_names_nothing_is_refused) {
  EXPECT_THROW(add_lora(forward(), {.targets = {"c_attn"}}), UsageError);
}

// Masters that files hold whole, of adapters, stay whole at each rank; vectors and small matrices are not cut.
TEST(Lora, a_fused_matrix_has_one_adapter_and_a_part_of_it_is_refused_by_its_name) {
  const ModelSpec phi =
      test_spec({.family = "phi3", .hidden = 16, .mlp = 24, .heads = 2, .kv_heads = 1, .vocab = 32});
  const Graph model = build_loss(phi, {8, 2, 4}, DType::f32, 4, Mode::train, "loss");
  const Graph train = differentiate(add_lora(model, {.r = 4, .alpha = 8}), {});
  verify(train);
  EXPECT_EQ(trainables(train).size(), 2 * 8U);
  EXPECT_EQ(train.tensor(train.find("model.layers.1.self_attn.qkv_proj.lora_B.weight")).shape,
            (Shape{32, 4}));
  EXPECT_EQ(train.tensor(train.find("model.layers.1.mlp.gate_up_proj.lora_A.weight")).shape, (Shape{4, 16}));
  for (const auto& [part, whole] : {std::pair{"q_proj", "qkv_proj"}, std::pair{"up_proj", "gate_up_proj"}}) {
    try {
      add_lora(model, {.targets = {"qkv_proj", part}});
      ADD_FAILURE() << part;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::string("name ") + whole));
    }
  }
}

const TrainPrecision kBf16Master{DType::bf16, DType::f32, DType::f32, true, false};

// By gradient of `train` that so many ranks cut: how often it is reduced.
std::map<std::string, int> reduced_gradients(const Graph& train, int64_t ranks) {
  std::map<std::string, int> reduced;
  for (const Tensor& weight : train.tensors())
    if (weight.role == Role::trainable_weight && piece_elements(weight.shape.elements(), ranks) > 0)
      reduced[gradient_name(weight.name)] = 0;
  return reduced;
}

TEST(ReduceGradients, what_is_cut_is_reduced_once_behind_its_last_writer_and_overwritten_in_each_micro_step) {
  const ModelSpec wide =
      test_spec({.hidden = 64, .mlp = 96, .heads = 2, .kv_heads = 1, .vocab = 32, .tied = true});
  const Graph model = build_loss(wide, {8, 2, 4}, DType::bf16, 4, Mode::train, "loss");
  for (const bool adapters : {false, true}) {
    const Graph train = differentiate(adapters ? add_lora(model, {.r = 32}) : make_trainable(model), {});
    for (const int64_t ranks : {2, 3}) {
      std::map<std::string, int> reduced = reduced_gradients(train, ranks);
      ASSERT_GT(reduced.size(), 0U);
      const Graph cut = reduce_gradients(train, ranks);
      verify(cut);
      for (const Op& op : cut.ops()) {
        for (const TensorId id : op.outputs) {
          if (id == kNoTensor || !reduced.contains(cut.tensor(id).name)) continue;
          EXPECT_EQ(reduced[cut.tensor(id).name], 0) << print_op(cut, op);
          EXPECT_NE(op.attr_int("accumulate"), kOverwritesFirst) << print_op(cut, op);
          EXPECT_EQ(cut.tensor(id).role, Role::activation);
        }
        if (op.kind != OpKind::reduce_scatter) continue;
        ++reduced.at(cut.tensor(op.input(operand::reduce_scatter::gradient)).name);
        EXPECT_EQ(cut.tensor(op.output(operand::reduce_scatter::piece)).role, Role::gradient);
      }
      for (const auto& [gradient, count] : reduced) EXPECT_EQ(count, 1) << gradient;
      // Ranks cover each gradient once, and what the update reads is what is reduced.
      std::map<std::string, int64_t> covered;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const Graph own = for_rank(cut, rank);
        for (const Op& op : own.ops()) {
          if (op.kind != OpKind::reduce_scatter) continue;
          EXPECT_EQ(op.attr_int("first"), covered[op.scope]) << op.scope;
          covered[op.scope] += op.attr_int("elements");
        }
      }
      const Graph update = build_update(train, kBf16Master, {}, {ranks, ShardStage::gradients, adapters});
      verify(update);
      for (const auto& [weight, elements] : covered) {
        EXPECT_EQ(elements, train.tensor(train.find(weight)).shape.elements()) << weight;
        const Tensor& piece = update.tensor(find_gradient(update, weight));
        EXPECT_EQ(piece.shape, cut.tensor(cut.find(piece.name)).shape) << weight;
        EXPECT_EQ(piece.whole, train.tensor(train.find(weight)).shape) << weight;
      }
    }
  }
}

TEST(Update, of_several_ranks_has_pieces_of_states_and_masters) {
  const TrainPrecision precision{DType::bf16, DType::f32, DType::f32, true, false};
  const ModelSpec wide = test_spec({.hidden = 64, .mlp = 96, .heads = 2, .kv_heads = 1, .vocab = 32});
  const Graph model = build_loss(wide, {8, 2, 4}, DType::bf16, 4, Mode::train, "loss");
  for (const bool adapters : {false, true}) {
    const Graph train = differentiate(adapters ? add_lora(model, {.r = 32}) : make_trainable(model), {});
    const Graph update = build_update(train, precision, {}, {2, ShardStage::states, adapters});
    verify(update);
    int pieces = 0, whole = 0;
    for (const Tensor& tensor : update.tensors()) {
      if (tensor.role != Role::optimizer_state && tensor.role != Role::master) continue;
      const bool is_piece = tensor.whole.rank() > 0;
      const int64_t piece = piece_elements(is_piece ? tensor.whole.elements() : tensor.shape.elements(), 2);
      const bool may_be_cut = piece > 0 && !(adapters && tensor.role == Role::master);
      EXPECT_EQ(is_piece, may_be_cut) << tensor.name;
      EXPECT_TRUE(!is_piece || tensor.shape.elements() == piece) << tensor.name;
      ++(is_piece ? pieces : whole);
    }
    EXPECT_GT(pieces, 0);
    EXPECT_GT(whole, 0);
    // Each rank's ranges are another part of every weight.
    const Graph second = for_rank(update, 1);
    for (const Op& op : second.ops())
      EXPECT_TRUE(!op.attrs.contains("piece") || op.attr_int("first") == op.attr_int("piece")) << op.scope;
    EXPECT_THROW(
        build_update(train, precision, {.kind = OptimizerKind::adafactor}, {2, ShardStage::states, adapters}),
        InternalError);
  }
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
    ASSERT_TRUE(op.has_output(operand::adamw::master)) << op.scope;
    const Tensor& weight = train.tensor(train.find(op.scope));
    for (const TensorId id : op.outputs) EXPECT_EQ(update.tensor(id).block, weight.block) << op.scope;
    EXPECT_EQ(update.tensor(op.outputs[operand::adamw::master]).parameter, weight.parameter) << op.scope;
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
  EXPECT_EQ(update.tensor(head.outputs[operand::adamw8bit::m]).dtype, DType::u8);
  EXPECT_EQ(update.tensor(head.outputs[operand::adamw8bit::m_scale]).shape, (Shape{32}));
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
