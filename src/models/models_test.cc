#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "base/error.h"
#include "graph/op_kind.h"
#include "models/model.h"
#include "models/parameter_names.h"
#include "models/spec.h"
#include "models/test_specs.h"
#include "ops/operands.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

nlohmann::json qwen25_05b() {
  return {{"model_type", "qwen2"},
          {"hidden_size", 896},
          {"intermediate_size", 4864},
          {"num_hidden_layers", 24},
          {"num_attention_heads", 14},
          {"num_key_value_heads", 2},
          {"vocab_size", 151936},
          {"tie_word_embeddings", true},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1e6},
          {"max_position_embeddings", 32768}};
}

TEST(ModelSpec, parameter_counts_equal_the_published_ones) {
  EXPECT_EQ(count_parameters(parse_model_spec(qwen25_05b(), "c")), 494'032'768);
  nlohmann::json qwen3 = {{"model_type", "qwen3"},     {"hidden_size", 1024},
                          {"intermediate_size", 3072}, {"num_hidden_layers", 28},
                          {"num_attention_heads", 16}, {"num_key_value_heads", 8},
                          {"vocab_size", 151936},      {"tie_word_embeddings", true}};
  EXPECT_EQ(count_parameters(parse_model_spec(qwen3, "c")), 596'049'920);
  nlohmann::json mistral = {{"model_type", "mistral"},    {"hidden_size", 4096},
                            {"intermediate_size", 14336}, {"num_hidden_layers", 32},
                            {"num_attention_heads", 32},  {"num_key_value_heads", 8},
                            {"vocab_size", 32000},        {"sliding_window", 4096}};
  const ModelSpec spec = parse_model_spec(mistral, "c");
  EXPECT_EQ(count_parameters(spec), 7'241'732'096);
  EXPECT_EQ(spec.windows.front(), 4096);
}

nlohmann::json t5(int64_t width, int64_t layers, int64_t heads, int64_t vocab) {
  return {{"model_type", "t5"}, {"d_model", width},     {"d_ff", 4 * width},  {"d_kv", 64},
          {"num_heads", heads}, {"num_layers", layers}, {"vocab_size", vocab}};
}

TEST(ModelSpec, an_encoder_and_a_decoder_have_the_parameters_of_their_checkpoints) {
  // ChatLM-mini, whose tied table counts once, and T5 small.
  EXPECT_EQ(count_parameters(parse_model_spec(t5(768, 10, 12, 29298), "c")), 187'692'288);
  EXPECT_EQ(count_parameters(parse_model_spec(t5(512, 6, 8, 32128), "c")), 60'506'624);
  const ModelSpec spec = parse_model_spec(t5(64, 2, 2, 32), "c");
  EXPECT_EQ(spec.layers, 4);
  EXPECT_TRUE(spec.encoder_decoder->scales_head);
  const Graph graph = build_loss(spec, {16, 2, 8, 12, 6}, DType::f32, 4, Mode::train, "loss");
  verify(graph);
  EXPECT_EQ(graph.stacks().size(), 2U);
  EXPECT_EQ(graph.axes().size(), 2U);
  EXPECT_EQ(graph.tensor(graph.find("decoder.labels")).shape, (Shape{12}));
  for (const Graph& program : build_generation(spec, {8, 1, 3, 16}, DType::f32)) verify(program);
}

TEST(ModelSpec, a_t5_is_what_its_config_says_beside_feed_forward_proj_or_it_is_refused) {
  const auto with = [](const nlohmann::json& changes) {
    nlohmann::json config = t5(64, 2, 2, 32);
    config.update(changes);
    return parse_model_spec(config, "c");
  };
  EXPECT_TRUE(
      with({{"feed_forward_proj", "gated-gelu"}, {"dense_act_fn", "gelu_new"}, {"is_gated_act", true}})
          .encoder_decoder->gated);
  EXPECT_FALSE(with({{"dense_act_fn", "relu"}, {"is_gated_act", false}}).encoder_decoder->gated);
  const auto refusal = [&](const nlohmann::json& changes) -> std::string {
    try {
      with(changes);
      return "accepted";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_NE(refusal({{"dense_act_fn", "gelu"}}).find("'dense_act_fn' is"), std::string::npos);
  EXPECT_NE(
      refusal({{"dense_act_fn", "silu"}, {"feed_forward_proj", "gated-gelu"}}).find("'dense_act_fn' is"),
      std::string::npos);
  EXPECT_NE(refusal({{"is_gated_act", true}}).find("'is_gated_act' is"), std::string::npos);
  EXPECT_FALSE(with({{"scale_decoder_outputs", nullptr}}).encoder_decoder->scales_head);
  EXPECT_FALSE(with({{"scale_decoder_outputs", false}}).encoder_decoder->scales_head);
}

// bert-base-uncased and roberta-base, whose published counts have no head but a pooler each; ours has two
// classes.
TEST(ModelSpec, encoders_have_the_parameters_of_their_checkpoints) {
  constexpr int64_t kHeadOfTwo = 2 * 768 + 2;
  const ModelSpec bert = parse_model_spec({{"model_type", "bert"}}, "c");
  EXPECT_EQ(count_parameters(bert, 2), 109'482'240 + kHeadOfTwo);
  EXPECT_EQ(bert.longest_text(), 512);
  const ModelSpec roberta = parse_model_spec({{"model_type", "roberta"},
                                              {"vocab_size", 50265},
                                              {"max_position_embeddings", 514},
                                              {"type_vocab_size", 1}},
                                             "c");
  EXPECT_EQ(count_parameters(roberta, 2), 124'645'632 + kHeadOfTwo);
  EXPECT_EQ(roberta.longest_text(), 512) << "positions begin behind the padding's";
  for (const ModelSpec* spec : {&bert, &roberta}) {
    const ScoredGraph scored = build_scores(*spec, {32, 4, 8}, DType::f32, 3, Mode::train, "");
    verify(scored.graph);
    EXPECT_EQ(scored.graph.tensor(scored.scores).shape, (Shape{4, 3}));
    EXPECT_THAT(
        [&] {
          build_log_probs(*spec, {32, 4, 8}, DType::f32, 8, Mode::train);
        },
        testing::ThrowsMessage<UsageError>(testing::HasSubstr("use task: mlm")));
  }
}

// The parameters that transformers counts in the public checkpoints' ...ForMaskedLM.
TEST(ModelSpec, encoders_guess_words_by_their_embedding_and_a_bias) {
  const auto spec_of = [](const nlohmann::json& config) { return parse_model_spec(config, "c"); };
  const ModelSpec bert = spec_of({{"model_type", "bert"}});
  const ModelSpec roberta = spec_of({{"model_type", "roberta"},
                                     {"vocab_size", 50265},
                                     {"max_position_embeddings", 514},
                                     {"type_vocab_size", 1}});
  const ModelSpec base = spec_of({{"model_type", "modernbert"}});
  const ModelSpec large = spec_of({{"model_type", "modernbert"},
                                   {"hidden_size", 1024},
                                   {"intermediate_size", 2624},
                                   {"num_hidden_layers", 28},
                                   {"num_attention_heads", 16}});
  EXPECT_EQ(count_parameters(bert), 109'514'298);
  EXPECT_EQ(count_parameters(roberta), 124'697'433);
  EXPECT_EQ(count_parameters(base), 149'655'232);
  EXPECT_EQ(count_parameters(large), 395'881'664);
  for (const auto& [spec, bias, table] :
       {std::tuple{&bert, "cls.predictions.bias", "bert.embeddings.word_embeddings.weight"},
        std::tuple{&roberta, "lm_head.bias", "roberta.embeddings.word_embeddings.weight"},
        std::tuple{&base, "decoder.bias", "model.embeddings.tok_embeddings.weight"}}) {
    const Graph graph = build_loss(*spec, {32, 4, 8}, DType::f32, 8, Mode::train, "loss");
    verify(graph);
    using at = operand::linear_cross_entropy;
    EXPECT_EQ(graph.ops().back().inputs[at::bias], graph.find(bias)) << bias;
    EXPECT_EQ(graph.ops().back().inputs[at::weight], graph.find(table)) << table;
    verify(build_logits(*spec, {32, 4, 8}, DType::f32));
  }
  const ModelSpec untied = spec_of({{"model_type", "bert"}, {"tie_word_embeddings", false}});
  EXPECT_THAT(
      [&] {
        build_logits(untied, {32, 4, 8}, DType::f32);
      },
      testing::ThrowsMessage<UsageError>(testing::HasSubstr("tie_word_embeddings")));
}

// Rows of a product's output, of 32 tokens in 4 sequences; 0 where no op has the name.
int64_t rows_made_by(const Graph& graph, const std::string& scope) {
  for (const Op& op : graph.ops())
    if (op.kind == OpKind::linear && op.scope == scope)
      return graph.tensor(op.outputs[operand::linear::y]).shape[0];
  return 0;
}

TEST(Scores, the_last_layer_goes_on_with_the_rows_that_decide) {
  ModelSpec llama = test_spec({});
  const std::string last = "model.layers." + std::to_string(llama.layers - 1);
  const auto rows = [&](const std::string& scope) {
    return rows_made_by(build_scores(llama, {32, 4, 8}, DType::f32, 3, Mode::train, "").graph, scope);
  };
  for (const char* all : {".self_attn.k_proj", ".self_attn.v_proj"}) EXPECT_EQ(rows(last + all), 32) << all;
  for (const char* few : {".self_attn.q_proj", ".self_attn.o_proj", ".mlp.gate_proj", ".mlp.down_proj"}) {
    EXPECT_EQ(rows(last + few), 4) << few;
    EXPECT_EQ(rows("model.layers.0" + std::string(few)), 32) << few;
  }
  ModelSpec gla =
      parse_model_spec({{"model_type", "gla"}, {"hidden_size", 32}, {"num_hidden_layers", 2}}, "c");
  const Graph of_gla = build_scores(gla, {32, 4, 8}, DType::f32, 3, Mode::train, "").graph;
  verify(of_gla);
  EXPECT_EQ(rows_made_by(of_gla, "model.layers.1.attn.q_proj"), 32) << "the state goes through all of them";
  EXPECT_EQ(rows_made_by(of_gla, "model.layers.1.attn.g_proj"), 4);
  llama.windows.back() = 8;
  EXPECT_EQ(rows(last + ".self_attn.q_proj"), 4) << "sequences are no longer than the window";
  llama.windows.back() = 4;
  EXPECT_EQ(rows(last + ".self_attn.q_proj"), 32) << "a window is of its own axis";
  EXPECT_EQ(rows(last + ".self_attn.o_proj"), 4);
}

TEST(Scores, a_t5_scores_behind_its_decoder_and_a_value_head_has_a_bias_and_dropout) {
  const ModelSpec t5_spec = parse_model_spec(t5(64, 2, 2, 32), "c");
  const ScoredGraph scored = build_scores(t5_spec, {32, 4, 8, 32, 8}, DType::f32, 3, Mode::train, "");
  verify(scored.graph);
  EXPECT_EQ(scored.graph.tensor(scored.scores).shape, (Shape{4, 3}));
  for (const char* name : {"transformer.shared.weight", "transformer.decoder.final_layer_norm.weight",
                           "classification_head.dense.weight", "classification_head.out_proj.bias"})
    EXPECT_NE(scored.graph.find(name), kNoTensor) << name;
  EXPECT_EQ(scored.graph.find("lm_head.weight"), kNoTensor);
  ModelSpec llama = test_spec({});
  llama.value_head = true;
  const auto dropouts = [&](Mode mode) {
    const Graph graph = build_scores(llama, {32, 4, 8}, DType::f32, 1, mode, "").graph;
    EXPECT_NE(graph.find("v_head.summary.bias"), kNoTensor);
    return std::count_if(graph.ops().begin(), graph.ops().end(),
                         [](const Op& op) { return op.kind == OpKind::dropout; });
  };
  EXPECT_EQ(dropouts(Mode::train), 1);
  EXPECT_EQ(dropouts(Mode::evaluate), 0);
}

TEST(ModelSpec, a_pooler_is_new_where_the_checkpoint_has_none) {
  ModelSpec spec = parse_model_spec({{"model_type", "bert"}, {"num_hidden_layers", 1}}, "c");
  const auto origin_of = [&](const std::string& name) {
    const Graph graph = build_scores(spec, {32, 4, 8}, DType::f32, 3, Mode::train, "").graph;
    return graph.tensor(graph.find(name)).parameter.origin;
  };
  EXPECT_EQ(origin_of("bert.pooler.dense.weight"), Origin::checkpoint);
  EXPECT_EQ(origin_of("classifier.bias"), Origin::fresh);
  spec.encoder->fresh_pooler = true;
  EXPECT_EQ(origin_of("bert.pooler.dense.weight"), Origin::fresh);
}

// A model with that value is refused by the key's name.
void expect_refused(nlohmann::json config, const char* key, const nlohmann::json& value) {
  config[key] = value;
  try {
    parse_model_spec(config, "c");
    ADD_FAILURE() << key << " was accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
  }
}

TEST(ModelSpec, a_refused_type_is_told_what_it_needs_and_the_nearest_that_works) {
  const auto refusal = [](const char* type) {
    try {
      parse_model_spec({{"model_type", type}}, "c");
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  for (const auto& [type, what, nearest] :
       {std::tuple{"granitemoehybrid", "Mamba 2", "granite"}, std::tuple{"deepseek_v3", "MLA", "llama"},
        std::tuple{"olmoe", "experts", "olmo2"}, std::tuple{"phimoe", "experts", "phi3"},
        std::tuple{"llava", "images", "llama"},
        std::tuple{"deberta-v2", "relative positions", "modernbert"}}) {
    EXPECT_NE(refusal(type).find(what), std::string::npos) << refusal(type);
    EXPECT_NE(refusal(type).find(std::string("works is ") + nearest + ";"), std::string::npos)
        << refusal(type);
    EXPECT_NO_THROW(parse_model_spec({{"model_type", nearest},
                                      {"hidden_size", 64},
                                      {"intermediate_size", 64},
                                      {"num_hidden_layers", 1},
                                      {"num_attention_heads", 2},
                                      {"vocab_size", 64},
                                      {"pad_token_id", 0}},
                                     "c"));
  }
  EXPECT_NE(refusal("none").find("'none' is not supported; supported: gla"), std::string::npos);
}

TEST(ModelSpec, what_is_asked_and_not_supported_is_refused_by_name) {
  const auto expect_refusal = [](const char* key, const nlohmann::json& value) {
    expect_refused(qwen25_05b(), key, value);
  };
  expect_refusal("model_type", "gpt_oss");
  expect_refusal("hidden_act", "gelu");
  expect_refusal("attention_dropout", 0.1);
  expect_refusal("rope_scaling", {{"rope_type", "longrope"}, {"factor", 2.0}});
  expect_refusal("partial_rotary_factor", 0.5);
  expect_refusal("num_hidden_layers", 1'000'000'000);
  expect_refusal("num_hidden_layers", UINT64_MAX);
  expect_refusal("vocab_size", "many");
  expect_refusal("rope_theta", -1.0);
  expect_refusal("rms_norm_eps", -1e-6);
  expect_refusal("initializer_range", 1e30);
  expect_refusal("rope_scaling", {{"rope_type", "linear"}, {"factor", 1e-300}});
  expect_refusal("num_key_value_heads", 3);
}

TEST(ModelSpec, what_an_encoder_asks_and_has_not_is_refused_by_name) {
  const auto refused = [](const char* key, const nlohmann::json& value) {
    expect_refused({{"model_type", "bert"}}, key, value);
  };
  refused("is_decoder", true);
  refused("add_cross_attention", true);
  refused("position_embedding_type", "relative_key");
  refused("hidden_act", "silu");
  refused("num_attention_heads", 7);
  refused("hidden_dropout_prob", 1.0);
  refused("pad_token_id", 30522);
  expect_refused({{"model_type", "roberta"}}, "max_position_embeddings", 2);
  EXPECT_THROW(
      parse_model_spec({{"model_type", "bert"}, {"architectures", {"BertForTokenClassification"}}}, "c"),
      UsageError);
}

// fla-hub/gla-1.3B-100B: everything at the defaults of GLAConfig.
TEST(ModelSpec, gla_is_read_as_fla_reads_it) {
  const ModelSpec spec = parse_model_spec({{"model_type", "gla"}, {"intermediate_size", nullptr}}, "c");
  EXPECT_EQ(spec.mlp_width, 5632);
  EXPECT_EQ(spec.linear_attention->key_dim, 256);
  EXPECT_EQ(spec.linear_attention->value_dim, 512);
  EXPECT_EQ(count_parameters(spec), 1'365'514'240);
  EXPECT_FALSE(spec.longest_text());
  // 7B: grouped heads and no output gate, but a feature map.
  nlohmann::json large = {{"model_type", "gla"},        {"hidden_size", 4096},   {"num_heads", 32},
                          {"num_kv_heads", 8},          {"expand_k", 1.0},       {"use_output_gate", false},
                          {"intermediate_size", 14336}, {"hidden_act", "swish"}, {"clamp_min", -2.0}};
  EXPECT_EQ(parse_model_spec(large, "c").linear_attention->key_dim, 128);
  EXPECT_EQ(parse_model_spec(large, "c").linear_attention->clamp_min, -2.0);
  expect_refused(large, "feature_map", "relu");
  expect_refused(large, "conv_bias", true);
  nlohmann::json convolved = large;
  convolved["use_short_conv"] = true;
  EXPECT_EQ(parse_model_spec(convolved, "c").linear_attention->conv_taps, 4);
  EXPECT_EQ(
      count_parameters(parse_model_spec(convolved, "c")) - count_parameters(parse_model_spec(large, "c")),
      24 * 4 * (4096 + 1024 + 1024));
  expect_refused(convolved, "conv_size", 1);
  expect_refused(convolved, "conv_size", 17);
  expect_refused(large, "use_gv", true);
  expect_refused(large, "use_gk", false);
  expect_refused(large, "elementwise_affine", false);
  expect_refused(large, "attn", {{"layers", {0}}, {"num_heads", 32}});
  expect_refused(large, "hidden_act", "gelu");
  expect_refused(large, "gate_low_rank_dim", 32);
  expect_refused(large, "gate_logit_normalizer", 8);
  expect_refused(large, "num_kv_heads", 5);
  expect_refused(large, "expand_k", 0.3);
  expect_refused(large, "expand_v", 1e6);
}

nlohmann::json qwen35(int64_t hidden, int64_t mlp, int64_t layers, int64_t heads, int64_t kv_heads,
                      int64_t value_heads, bool tied) {
  return {{"model_type", "qwen3_5_text"},
          {"hidden_size", hidden},
          {"intermediate_size", mlp},
          {"num_hidden_layers", layers},
          {"num_attention_heads", heads},
          {"num_key_value_heads", kv_heads},
          {"linear_num_value_heads", value_heads},
          {"vocab_size", 248320},
          {"tie_word_embeddings", tied}};
}

// models-2026: 0.8B, 2B, 4B, 9B and 27B.
TEST(DeltaNet, has_the_published_parameters) {
  const auto counted_of = [](const nlohmann::json& config) {
    return count_parameters(parse_model_spec(config, "c"));
  };
  EXPECT_EQ(counted_of(qwen35(1024, 3584, 24, 8, 2, 16, true)), 752'393'024);
  EXPECT_EQ(counted_of(qwen35(2048, 6144, 24, 8, 2, 16, true)), 1'881'825'088);
  EXPECT_EQ(counted_of(qwen35(2560, 9216, 32, 16, 4, 32, true)), 4'205'751'296);
  EXPECT_EQ(counted_of(qwen35(4096, 12288, 32, 16, 4, 32, false)), 8'953'803'264);
  EXPECT_EQ(counted_of(qwen35(5120, 17408, 64, 24, 4, 48, false)), 26'895'998'464);
}

TEST(DeltaNet, is_read_as_transformers_reads_it_or_refused_by_name) {
  nlohmann::json config = qwen35(64, 128, 8, 4, 2, 4, false);
  config["linear_num_key_heads"] = 2;
  const ModelSpec spec = parse_model_spec(config, "c");
  EXPECT_EQ(spec.delta_net->attends,
            (std::vector<bool>{false, false, false, true, false, false, false, true}));
  EXPECT_EQ(spec.head_dim, 256);
  EXPECT_EQ(spec.rotary(), 64);
  EXPECT_EQ(spec.attending_layers(), 2);
  EXPECT_EQ(spec.with_stacks({2}).delta_net->attends, (std::vector<bool>{false, true})) << "one of each kind";
  EXPECT_EQ(spec.with_stacks({12}).attending_layers(), 3) << "further layers of the same kinds";
  config["rope_parameters"] = {{"rope_type", "default"},
                               {"rope_theta", 1e7},
                               {"partial_rotary_factor", 0.5},
                               {"mrope_section", {11, 11, 10}}};
  EXPECT_EQ(parse_model_spec(config, "c").rotary(), 128);
  EXPECT_EQ(parse_model_spec(config, "c").rope.theta, 1e7);
  expect_refused(config, "output_gate_type", "sigmoid");
  expect_refused(config, "attn_output_gate", false);
  expect_refused(config, "mamba_ssm_dtype", "bfloat16");
  expect_refused(config, "hidden_act", "gelu");
  expect_refused(config, "attention_dropout", 0.1);
  expect_refused(config, "linear_num_value_heads", 3);
  expect_refused(config, "linear_key_head_dim", 20);
  expect_refused(config, "head_dim", 36);
  expect_refused(config, "layer_types", {"full_attention"});
  expect_refused(config, "layer_types", std::vector<std::string>(8, "sliding_attention"));
}

TEST(DeltaNet, fused_by_key_head_has_as_many_parameters_where_no_layer_is_sparse) {
  nlohmann::json config = qwen35(64, 128, 4, 4, 2, 8, false);
  config["linear_num_key_heads"] = 4;
  const int64_t apart = count_parameters(parse_model_spec(config, "c"));
  config["model_type"] = "qwen3_next";
  EXPECT_THROW((void)parse_model_spec(config, "c"), UsageError) << "512 experts";
  config["num_experts"] = 0;
  EXPECT_EQ(count_parameters(parse_model_spec(config, "c")), apart);
  // The configuration classes of transformers: two key heads here, four of qwen3_5.
  nlohmann::json usual = config;
  usual.erase("num_key_value_heads");
  EXPECT_EQ(count_parameters(parse_model_spec(usual, "c")), apart) << "two, as the configuration above";
  usual["num_attention_heads"] = 8;
  const int64_t of_next = count_parameters(parse_model_spec(usual, "c"));
  usual["num_key_value_heads"] = 2;
  EXPECT_EQ(of_next, count_parameters(parse_model_spec(usual, "c")));
  usual["num_key_value_heads"] = 4;
  EXPECT_NE(of_next, count_parameters(parse_model_spec(usual, "c")));
  config["num_experts"] = 512;
  config["mlp_only_layers"] = {0, 1, 2, 3};
  const ModelSpec spec = parse_model_spec(config, "c");
  const Graph graph = build_loss(spec, {16, 2, 8}, DType::f32, 4, Mode::train, "loss");
  const auto shape_of = [&](const char* name) {
    return graph.tensor(graph.find("model.layers.0.linear_attn." + std::string(name) + ".weight")).shape;
  };
  EXPECT_EQ(shape_of("in_proj_qkvz"), (Shape{2 * (4 * 128 + 8 * 128), 64}));
  EXPECT_EQ(shape_of("in_proj_ba"), (Shape{16, 64}));
  config["mlp_only_layers"] = {1, 3};
  config["decoder_sparse_step"] = 2;  // layers 1 and 3
  EXPECT_NO_THROW((void)parse_model_spec(config, "c"));
  expect_refused(config, "decoder_sparse_step", 3);
}

// transformers' Trainer: what has `bias` or `norm` in its name does not decay.
TEST(DeltaNet, decays_and_convolutions_decay_and_biases_and_norms_do_not) {
  const ModelSpec spec = parse_model_spec(qwen35(64, 128, 4, 4, 2, 16, true), "c");
  const Graph graph = build_loss(spec, {16, 2, 8}, DType::f32, 4, Mode::train, "loss");
  const auto decays = [&](const char* name) {
    return graph.tensor(graph.find("model.layers.0." + std::string(name))).parameter.decays;
  };
  for (const char* name : {"linear_attn.A_log", "linear_attn.conv1d.weight", "linear_attn.in_proj_a.weight"})
    EXPECT_TRUE(decays(name)) << name;
  for (const char* name : {"linear_attn.dt_bias", "linear_attn.norm.weight", "input_layernorm.weight"})
    EXPECT_FALSE(decays(name)) << name;
}

TEST(ModelSpec, qwen_windows_start_at_max_window_layers) {
  nlohmann::json config = qwen25_05b();
  config["use_sliding_window"] = true;
  config["sliding_window"] = 128;
  config["max_window_layers"] = 20;
  const ModelSpec spec = parse_model_spec(config, "c");
  EXPECT_EQ(spec.windows[19], 0);
  EXPECT_EQ(spec.windows[20], 128);
}

nlohmann::json small(const char* family) {
  return {{"model_type", family},      {"hidden_size", 512},
          {"intermediate_size", 64},   {"num_hidden_layers", 4},
          {"num_attention_heads", 32}, {"head_dim", 16},
          {"vocab_size", 100},         {"num_key_value_heads", 8},
          {"rope_theta", 1e4},         {"max_position_embeddings", 1000}};
}

// transformers 5.23: MistralConfig and its brothers, and RotaryEmbeddingConfigMixin.
TEST(ModelSpec, configurations_are_read_as_transformers_reads_them) {
  const auto rope_of = [](const nlohmann::json& changes) {
    nlohmann::json config = small("llama");
    config.update(changes);
    return parse_model_spec(config, "c").rope;
  };
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const nlohmann::json llama3 = {{"rope_type", "llama3"}, {"factor", 8.0}, {kOriginal, 64}};
  EXPECT_EQ(rope_of({{"rope_scaling", llama3}}).original_length, 64);
  EXPECT_EQ(rope_of({{"rope_scaling", llama3}, {kOriginal, 128}}).original_length, 128) << "outside wins";
  const nlohmann::json dynamic = {{"rope_type", "dynamic"}, {"factor", 2.0}, {kOriginal, 64}};
  EXPECT_EQ(rope_of({{"rope_scaling", dynamic}, {kOriginal, 128}}).original_length, 1000)
      << "positions alone";
  const nlohmann::json linear = {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 7.0}};
  EXPECT_EQ(rope_of({{"rope_scaling", llama3}, {"rope_parameters", linear}}).type, RopeType::llama3);
  EXPECT_EQ(rope_of({{"rope_scaling", nullptr}, {"rope_parameters", linear}}).type, RopeType::linear);

  nlohmann::json mistral = small("mistral");
  EXPECT_EQ(parse_model_spec(mistral, "c").windows, std::vector<int64_t>(4, 4096)) << "the class's default";
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(parse_model_spec(mistral, "c").windows, std::vector<int64_t>(4, 0));
  mistral["sliding_window"] = 32;
  mistral["layer_types"] = {"full_attention", "sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(parse_model_spec(mistral, "c").windows, (std::vector<int64_t>{0, 32, 0, 32}))
      << "Ministral's layers";

  mistral.erase("num_key_value_heads");
  EXPECT_EQ(parse_model_spec(mistral, "c").kv_heads, 8);
  mistral["num_key_value_heads"] = nullptr;
  EXPECT_EQ(parse_model_spec(mistral, "c").kv_heads, 32);
  mistral.erase("max_position_embeddings");
  EXPECT_EQ(parse_model_spec(mistral, "c").max_positions, 131'072);
}

// transformers 5.23: SmolLM3Config and SmolLM3Attention.
TEST(ModelSpec, smollm3_has_layers_without_rope) {
  nlohmann::json config = small("smollm3");
  const auto ropes_of = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json changed = config;
    changed[key] = value;
    return parse_model_spec(changed, "c").rope_of_layer;
  };
  const ModelSpec spec = parse_model_spec(config, "c");
  EXPECT_EQ(spec.rope_of_layer, (std::vector<int64_t>{0, 0, 0, 1})) << "every fourth by default";
  ASSERT_EQ(spec.other_ropes.size(), 1U);
  EXPECT_EQ(spec.other_ropes[0].type, RopeType::none);
  EXPECT_TRUE(spec.tied_head) << "the class's default";
  EXPECT_EQ(spec.with_stacks({2}).rope_of_layer, (std::vector<int64_t>{0, 1}))
      << "few layers have both tables";
  EXPECT_EQ(spec.with_stacks({6}).rope_of_layer, (std::vector<int64_t>{0, 0, 0, 1, 0, 0})) << "more layers";
  EXPECT_EQ(ropes_of("no_rope_layer_interval", 2), (std::vector<int64_t>{0, 1, 0, 1}));
  EXPECT_EQ(ropes_of("no_rope_layers", {1, 0, 0, 1, 1}), (std::vector<int64_t>{0, 1, 1, 0}))
      << "1 is with RoPE";
  EXPECT_TRUE(ropes_of("no_rope_layers", {1, 1, 1, 1}).empty());
  expect_refused(config, "no_rope_layers", {1, 0, 1});
  expect_refused(config, "no_rope_layers", {1, 0, 1, 2});
  expect_refused(config, "no_rope_layer_interval", 0);
  const nlohmann::json types = {"full_attention", "sliding_attention", "full_attention", "sliding_attention"};
  config["sliding_window"] = 32;
  expect_refused(config, "layer_types", types);
  EXPECT_EQ(parse_model_spec(config, "c").windows, std::vector<int64_t>(4, 0));
  config["use_sliding_window"] = true;
  EXPECT_EQ(parse_model_spec(config, "c").windows, (std::vector<int64_t>{0, 0, 0, 32}));
  config["layer_types"] = types;
  EXPECT_EQ(parse_model_spec(config, "c").windows, (std::vector<int64_t>{0, 32, 0, 32}));
}

// Sizes of a public model: hidden, MLP, layers, heads, key-value heads, width of a head, vocabulary.
nlohmann::json sized(const char* family, const std::array<int64_t, 7>& sizes) {
  nlohmann::json config = {{"model_type", family}};
  const std::array keys = {"hidden_size",         "intermediate_size",   "num_hidden_layers",
                           "num_attention_heads", "num_key_value_heads", "head_dim",
                           "vocab_size"};
  for (size_t i = 0; i < keys.size(); ++i) config[keys[i]] = sizes[i];
  return config;
}
int64_t counted(const char* family, const std::array<int64_t, 7>& sizes, const nlohmann::json& changes = {}) {
  nlohmann::json config = sized(family, sizes);
  if (!changes.is_null()) config.update(changes);
  return count_parameters(parse_model_spec(config, "c"));
}

// As their checkpoints on the hub have them.
TEST(ModelSpec, decoders_of_today_have_the_published_parameters) {
  EXPECT_EQ(counted("gemma2", {2304, 9216, 26, 8, 4, 256, 256000}), 2'614'341'888);
  EXPECT_EQ(counted("gemma2", {3584, 14336, 42, 16, 8, 256, 256000}), 9'241'705'984);
  EXPECT_EQ(counted("gemma2", {4608, 36864, 46, 32, 16, 128, 256000}), 27'227'128'320);
  EXPECT_EQ(counted("gemma3_text", {640, 2048, 18, 4, 1, 256, 262144}), 268'098'176);
  EXPECT_EQ(counted("gemma3_text", {1152, 6912, 26, 4, 1, 256, 262144}), 999'885'952);
  EXPECT_EQ(counted("gemma3_text", {2560, 10240, 34, 8, 4, 256, 262208}), 3'880'263'168);
  EXPECT_EQ(counted("gemma3_text", {3840, 15360, 48, 16, 8, 256, 262208}), 11'766'034'176);
  EXPECT_EQ(counted("gemma3_text", {5376, 21504, 62, 32, 16, 128, 262208}), 27'009'346'304);
  EXPECT_EQ(counted("olmo2", {2048, 8192, 16, 16, 16, 128, 100352}), 1'484'916'736);
  EXPECT_EQ(counted("olmo2", {4096, 11008, 32, 32, 32, 128, 100352}), 7'298'617'344);
  EXPECT_EQ(counted("olmo2", {5120, 13824, 40, 40, 40, 128, 100352}), 13'716'198'400);
  EXPECT_EQ(counted("olmo2", {5120, 27648, 64, 40, 8, 128, 100352}), 32'234'279'936);
  EXPECT_EQ(counted("olmo3", {4096, 11008, 32, 32, 32, 128, 100278}), 7'298'011'136);
  EXPECT_EQ(counted("olmo3", {5120, 27648, 64, 40, 8, 128, 100278}), 32'233'522'176);
  const nlohmann::json tied = {{"tie_word_embeddings", true}};
  EXPECT_EQ(counted("ministral3", {3072, 9216, 26, 32, 8, 128, 131072}, tied), 3'429'006'336);
  EXPECT_EQ(counted("ministral3", {4096, 14336, 34, 32, 8, 128, 131072}), 8'489'553'920);
  EXPECT_EQ(counted("ministral3", {5120, 16384, 40, 32, 8, 128, 131072}), 13'506'073'600);
  EXPECT_EQ(counted("mistral", {5120, 32768, 40, 32, 8, 128, 131072}), 23'572'403'200);
  EXPECT_EQ(counted("granite", {2048, 8192, 40, 32, 8, 64, 49159}, tied), 2'533'539'840);
  EXPECT_EQ(counted("granite", {4096, 12800, 40, 32, 8, 128, 49159}, tied), 8'170'864'640);
  EXPECT_EQ(counted("phi3", {3072, 8192, 32, 32, 32, 96, 32064}), 3'821'079'552);
  EXPECT_EQ(counted("phi3", {5120, 17920, 40, 40, 10, 128, 100352}), 14'659'507'200);
  EXPECT_EQ(counted("phi3", {3072, 8192, 32, 24, 8, 128, 200064}, tied), 3'836'021'760);
}

// Phi-4-mini's kind: 6 of 8 pairs turn, by longrope.
nlohmann::json phi4_mini() {
  nlohmann::json config = sized("phi3", {64, 128, 2, 4, 2, 16, 100});
  config.update({{"partial_rotary_factor", 0.75},
                 {"original_max_position_embeddings", 4096},
                 {"max_position_embeddings", 131072},
                 {"rope_scaling",
                  {{"type", "longrope"},
                   {"short_factor", {1, 1, 1, 1, 1, 2}},
                   {"long_factor", {1, 2, 4, 8, 16, 32}}}}});
  return config;
}

// transformers 5.23: Phi3Config and _compute_longrope_parameters.
TEST(ModelSpec, phi3_has_fused_matrices_and_longrope_on_both_sides_of_its_limit) {
  const ModelSpec spec = parse_model_spec(phi4_mini(), "c");
  EXPECT_EQ(spec.rotary(), 12);
  EXPECT_EQ(spec.padding_row, 32000) << "the class's default";
  const Graph graph = build_loss(spec, {32, 4, 8}, DType::f32, 8, Mode::train, "loss");
  EXPECT_EQ(graph.tensor(graph.find("model.layers.1.self_attn.qkv_proj.weight")).shape, (Shape{128, 64}));
  EXPECT_EQ(graph.tensor(graph.find("model.layers.1.mlp.gate_up_proj.weight")).shape, (Shape{256, 64}));
  EXPECT_EQ(graph.tensor(graph.find("inv_freq")).shape, (Shape{4, 7}));
  const auto last_at = [&](int64_t length) {
    std::vector<float> frequencies(7);
    rope_frequencies(spec.rope, spec.rotary(), length, frequencies);
    EXPECT_FLOAT_EQ(frequencies[6], std::sqrt(1.0F + std::log(32.0F) / std::log(4096.0F)));
    return frequencies[5];
  };
  EXPECT_FLOAT_EQ(last_at(4096) / last_at(4097), 16.0F);
  EXPECT_FALSE(why_no_shared_prefixes(spec, 4097).empty());
  EXPECT_TRUE(why_no_shared_prefixes(spec, 4096).empty());
}

TEST(ModelSpec, phi3_reads_both_spellings_and_refuses_what_transformers_does_not_read) {
  nlohmann::json config = phi4_mini();
  const auto long_factors = [&] { return parse_model_spec(config, "c").rope.long_factors; };
  const std::vector<float> first = long_factors();
  config["rope_scaling"]["type"] = "yarn";  // an older name, as transformers reads it
  EXPECT_EQ(long_factors(), first);
  nlohmann::json today = config;
  today["rope_parameters"] = config["rope_scaling"];
  today["rope_parameters"]["rope_type"] = "longrope";
  today["rope_parameters"]["partial_rotary_factor"] = 0.75;
  today.erase("rope_scaling");
  today.erase("partial_rotary_factor");
  const ModelSpec of_today = parse_model_spec(today, "c");
  EXPECT_EQ(of_today.rope.long_factors, first);
  EXPECT_EQ(of_today.rotary(), 12);
  const nlohmann::json scaling = config["rope_scaling"];
  const auto refuses = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json settings = scaling;
    settings[key] = value;
    expect_refused(phi4_mini(), "rope_scaling", settings);
  };
  refuses("type", "su");
  refuses("type", "linear");
  refuses("long_factor", {1, 2, 4});
  refuses("short_factor", {1, 1, 1, 1, 1, 0});
  expect_refused(phi4_mini(), "partial_rotary_factor", 0.05);
  expect_refused(phi4_mini(), "attention_dropout", 0.1);
  expect_refused(phi4_mini(), "attention_bias", true);
  config = phi4_mini();
  config["resid_pdrop"] = 0.1;
  const Graph graph =
      build_loss(parse_model_spec(config, "c"), {32, 4, 8}, DType::f32, 8, Mode::train, "loss");
  EXPECT_EQ(std::ranges::count(graph.ops(), OpKind::dropout, &Op::kind), 4);
}

// transformers 5.23: ModernBertConfig.
TEST(ModelSpec, modernbert_has_windows_of_both_sides_and_ropes_by_layer) {
  nlohmann::json config = {{"model_type", "modernbert"}, {"num_hidden_layers", 5}};
  const ModelSpec spec = parse_model_spec(config, "c");
  EXPECT_EQ(spec.windows, (std::vector<int64_t>{0, 65, 65, 0, 65}));
  EXPECT_EQ(spec.rope_of_layer, (std::vector<int64_t>{0, 1, 1, 0, 1}));
  EXPECT_EQ(spec.rope.theta, 160000.0);
  EXPECT_EQ(spec.other_ropes.at(0).theta, 10000.0);
  config["global_rope_theta"] = 80000.0;
  config["global_attn_every_n_layers"] = 2;
  EXPECT_EQ(parse_model_spec(config, "c").rope.theta, 80000.0);
  EXPECT_EQ(parse_model_spec(config, "c").windows, (std::vector<int64_t>{0, 65, 0, 65, 0}));
  const Graph graph = build_scores(spec, {32, 4, 8}, DType::f32, 3, Mode::train, "").graph;
  for (const OpKind kind : {OpKind::geglu, OpKind::gelu})
    for (const Op& op : graph.ops())
      if (op.kind == kind) {
        EXPECT_EQ(op.attr_text("approximate"), "none");
      }
  EXPECT_FALSE(spec.encoder->pools_mean);
  config["classifier_pooling"] = "mean";
  EXPECT_TRUE(parse_model_spec(config, "c").encoder->pools_mean);
  EXPECT_EQ(graph.find("model.layers.0.attn_norm.weight"), kNoTensor);
  EXPECT_EQ(graph.find("model.layers.1.attn_norm.bias"), kNoTensor);
  EXPECT_EQ(graph.tensor(graph.find("model.layers.1.attn.Wqkv.weight")).shape, (Shape{2304, 768}));
  expect_refused(config, "classifier_pooling", "max");
  expect_refused(config, "hidden_activation", "silu");
  expect_refused(config, "layer_types", {"full_attention"});
  expect_refused(config, "rope_scaling", {{"type", "linear"}, {"factor", 2.0}});
}

// transformers 5.23: Gemma3TextConfig.
TEST(ModelSpec, gemma3_has_ropes_and_windows_by_layer) {
  nlohmann::json config = sized("gemma3_text", {64, 128, 7, 4, 1, 16, 100});
  const ModelSpec plain = parse_model_spec(config, "c");
  EXPECT_EQ(plain.windows, (std::vector<int64_t>{4096, 4096, 4096, 4096, 4096, 0, 4096}));
  EXPECT_EQ(plain.rope_of_layer, (std::vector<int64_t>{1, 1, 1, 1, 1, 0, 1}));
  EXPECT_EQ(plain.rope.theta, 1e6);
  EXPECT_EQ(plain.other_ropes.at(0).theta, 1e4);
  EXPECT_EQ(plain.attention_scale, 1.0 / 16.0) << "not by the width of a head";
  EXPECT_EQ(plain.padding_row, 0) << "the class's default";
  const ModelSpec few = plain.with_stacks({2});
  EXPECT_EQ(few.rope_of_layer, (std::vector<int64_t>{1, 0})) << "few layers have both tables";
  EXPECT_EQ(few.windows, (std::vector<int64_t>{4096, 0}));
  config.update({{"sliding_window_pattern", 2},
                 {"sliding_window", 8},
                 {"rope_theta", 5e5},
                 {"rope_local_base_freq", 7e3},
                 {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                 {"attn_logit_softcapping", 50.0},
                 {"pad_token_id", nullptr}});
  const ModelSpec old = parse_model_spec(config, "c");
  EXPECT_EQ(old.windows, (std::vector<int64_t>{8, 0, 8, 0, 8, 0, 8}));
  EXPECT_EQ(old.rope.type, RopeType::linear);
  EXPECT_EQ(old.rope.theta, 5e5);
  EXPECT_EQ(old.other_ropes.at(0).type, RopeType::standard);
  EXPECT_EQ(old.other_ropes.at(0).theta, 7e3);
  EXPECT_EQ(old.attention_softcap, 0) << "Gemma 3 has none, whatever the file says";
  EXPECT_EQ(old.padding_row, std::nullopt);
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling"}) config.erase(key);
  config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"rope_theta", 5e5}, {"factor", 8.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 7e3}}}};
  const ModelSpec today = parse_model_spec(config, "c");
  EXPECT_EQ(today.rope.type, RopeType::linear);
  EXPECT_EQ(today.rope.theta, 5e5);
  EXPECT_EQ(today.other_ropes.at(0).theta, 7e3);
  expect_refused(config, "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}});
  expect_refused(config, "rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}});
  expect_refused(config, "use_bidirectional_attention", true);
  expect_refused(config, "hidden_activation", "gelu");
  expect_refused(config, "layer_types", {"full_attention"});
  expect_refused(config, "sliding_window", nullptr);
  expect_refused(config, "per_layer_config", {{"5", {{"head_dim", 512}}}});
  expect_refused(config, "mlp_bias", true);
}

nlohmann::json wrapper_of(const std::string& type, nlohmann::json text) {
  return {
      {"model_type", type}, {"text_config", std::move(text)}, {"vision_config", {{"num_hidden_layers", 1}}}};
}

// As the hub has gemma-3-4b-it and Mistral-Small-3.1, which leave keys to the classes.
TEST(Wrapper, has_the_parameters_of_its_text_model) {
  const nlohmann::json gemma =
      wrapper_of("gemma3", {{"hidden_size", 2560},
                            {"intermediate_size", 10240},
                            {"model_type", "gemma3_text"},
                            {"num_hidden_layers", 34},
                            {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                            {"sliding_window", 1024}});
  EXPECT_EQ(count_parameters(parse_model_spec(gemma, "c")), 3'880'263'168);
  nlohmann::json text = sized("mistral", {5120, 32768, 40, 32, 8, 128, 131072});
  EXPECT_EQ(count_parameters(parse_model_spec(wrapper_of("mistral3", text), "c")), 23'572'403'200);
  text.erase("model_type");
  EXPECT_EQ(parse_model_spec(wrapper_of("mistral3", text), "c").family, "mistral");
}

TEST(Wrapper, has_the_names_of_modules_within_it_and_the_head_that_the_whole_says) {
  nlohmann::json config = wrapper_of("gemma3", sized("gemma3_text", {64, 128, 2, 4, 1, 16, 100}));
  config["text_config"]["tie_word_embeddings"] = true;
  config["text_config"]["final_logit_softcapping"] = 30.0;
  config["tie_word_embeddings"] = false;
  const ModelSpec spec = parse_model_spec(config, "c");
  EXPECT_EQ(spec.wrapper, "gemma3");
  EXPECT_EQ(spec.architecture, "Gemma3ForConditionalGeneration");
  EXPECT_FALSE(spec.tied_head);
  EXPECT_EQ(spec.logit_softcap, 0) << "the class of the whole has no cap";
  const std::vector<std::string> names = parameter_names(spec);
  EXPECT_THAT(names, testing::Contains("model.language_model.layers.1.self_attn.q_proj.weight"));
  EXPECT_THAT(names, testing::IsSupersetOf({"model.language_model.embed_tokens.weight",
                                            "model.language_model.norm.weight", "lm_head.weight"}));
  config["architectures"] = {"Gemma3ForSequenceClassification"};
  EXPECT_TRUE(parse_model_spec(config, "c").scores_sequences);
  const ModelSpec other =
      parse_model_spec(wrapper_of("mistral3", sized("mistral", {64, 128, 2, 4, 1, 16, 100})), "c");
  EXPECT_THROW((void)build_scores(other, {4, 1, 4}, DType::f32, 1, Mode::evaluate, ""), UsageError);
  config["text_config"]["model_type"] = "llama";
  EXPECT_THROW((void)parse_model_spec(config, "c"), UsageError);
  config.erase("text_config");
  EXPECT_THROW((void)parse_model_spec(config, "c"), UsageError);
}

// The wrapper with images has the name that begins as the decoder's does.
TEST(ModelSpec, gemma3_that_scores_has_the_name_of_the_model_of_texts) {
  nlohmann::json config = sized("gemma3_text", {64, 128, 3, 4, 1, 16, 100});
  config["architectures"] = {"Gemma3TextForSequenceClassification"};
  EXPECT_TRUE(parse_model_spec(config, "c").scores_sequences);
  config["architectures"] = {"Gemma3ForSequenceClassification"};
  EXPECT_THROW((void)parse_model_spec(config, "c"), UsageError);
}

// transformers 5.23: Gemma2Config.
TEST(ModelSpec, gemma2_has_caps_unless_they_are_null) {
  nlohmann::json config = sized("gemma2", {64, 128, 3, 4, 1, 16, 100});
  const ModelSpec spec = parse_model_spec(config, "c");
  EXPECT_EQ(spec.windows, (std::vector<int64_t>{4096, 0, 4096}));
  EXPECT_EQ(spec.attention_softcap, 50.0);
  EXPECT_EQ(spec.logit_softcap, 30.0);
  EXPECT_TRUE(spec.other_ropes.empty());
  EXPECT_EQ(spec.embedding_factor, 8.0);
  config.update({{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", 2}});
  EXPECT_EQ(parse_model_spec(config, "c").attention_softcap, 0.0);
  EXPECT_EQ(parse_model_spec(config, "c").logit_softcap, 2.0);
  expect_refused(config, "query_pre_attn_scalar", 0);
  expect_refused(config, "final_logit_softcapping", -1.0);
}

// transformers 5.23: Olmo3Config; older files scale the RoPE of full layers alone, sliding ones have the class's base.
TEST(ModelSpec, olmo3_scales_full_layers_alone) {
  nlohmann::json config = sized("olmo3", {64, 128, 4, 4, 2, 16, 100});
  EXPECT_TRUE(parse_model_spec(config, "c").rope_of_layer.empty()) << "one rope for all";
  config["rope_theta"] = 1e4;
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 64}};
  const ModelSpec old = parse_model_spec(config, "c");
  EXPECT_EQ(old.windows, (std::vector<int64_t>{4096, 4096, 4096, 0}));
  EXPECT_EQ(old.rope_of_layer, (std::vector<int64_t>{1, 1, 1, 0}));
  EXPECT_EQ(old.rope.type, RopeType::yarn);
  EXPECT_EQ(old.rope.theta, 1e4);
  EXPECT_EQ(old.other_ropes.at(0).type, RopeType::standard);
  EXPECT_EQ(old.other_ropes.at(0).theta, 5e5);
  expect_refused(config, "hidden_act", "gelu");
}

// transformers 5.23: MinistralConfig and Ministral3Config.
TEST(ModelSpec, ministral3_has_queries_that_grow_with_their_position) {
  nlohmann::json config = sized("ministral", {64, 128, 2, 4, 2, 16, 100});
  EXPECT_EQ(parse_model_spec(config, "c").windows, std::vector<int64_t>(2, 4096)) << "the class's default";
  config["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(parse_model_spec(config, "c").windows, (std::vector<int64_t>{0, 4096}));
  config["model_type"] = "ministral3";
  const ModelSpec spec = parse_model_spec(config, "c");
  EXPECT_EQ(spec.windows, std::vector<int64_t>(2, 0)) << "types are not read";
  EXPECT_EQ(spec.rope.type, RopeType::yarn) << "the class's settings";
  EXPECT_EQ(spec.rope.attention_factor, 1.0);
  EXPECT_EQ(spec.query_position_beta, 0.1);
  config["rope_parameters"] = {
      {"rope_type", "yarn"}, {"factor", 16.0},        {"original_max_position_embeddings", 64},
      {"mscale", 1.0},       {"mscale_all_dim", 1.0}, {"llama_4_scaling_beta", 0.2}};
  EXPECT_EQ(parse_model_spec(config, "c").query_position_beta, 0.2);
  EXPECT_EQ(parse_model_spec(config, "c").rope.attention_factor, 1.0) << "by mscale";
  expect_refused(config, "attention_bias", true);
  config["rope_parameters"].erase("llama_4_scaling_beta");
  expect_refused(config, "rope_parameters", config["rope_parameters"]);
}

// The attributes of the ops of that kind, one after another.
std::vector<Attrs> attributes_of(const Graph& graph, OpKind kind) {
  std::vector<Attrs> found;
  for (const Op& op : graph.ops())
    if (op.kind == kind) found.push_back(op.attrs);
  return found;
}

// Every program that makes logits or a loss of them, of a small model.
std::vector<Graph> programs_with_logits(ModelSpec spec) {
  std::vector<Graph> programs = build_generation(spec, {8, 2}, DType::f32);
  programs.push_back(build_loss(spec, {32, 4, 8}, DType::f32, 8, Mode::train, "loss"));
  programs.push_back(build_logits(spec, {32, 4, 8}, DType::f32));
  programs.push_back(build_log_probs(spec, {32, 4, 8}, DType::f32, 8, Mode::train).graph);
  spec.words = {3, 4};
  programs.push_back(build_scores(spec, {32, 4, 8}, DType::f32, 2, Mode::train, "").graph);
  return programs;
}

TEST(Decoder, factors_and_caps_of_logits_are_in_every_loss_and_score) {
  nlohmann::json config = sized("gemma2", {64, 128, 2, 4, 1, 16, 100});
  config["final_logit_softcapping"] = 4.0;
  ModelSpec spec = parse_model_spec(config, "c");
  spec.logit_factor = 0.5;
  for (const Graph& program : programs_with_logits(spec)) {
    verify(program);
    const auto has = [&](OpKind kind) { return !attributes_of(program, kind).empty(); };
    bool capped = has(OpKind::tanh);
    for (const OpKind kind : {OpKind::linear_cross_entropy, OpKind::linear_log_prob})
      for (const Attrs& attrs : attributes_of(program, kind))
        capped = attrs.contains("softcap") && attrs.contains("factor");
    EXPECT_TRUE(capped) << program.name();
    for (const OpKind kind : {OpKind::attention, OpKind::attention_cached})
      for (const Attrs& attrs : attributes_of(program, kind)) EXPECT_TRUE(attrs.contains("softcap"));
  }
}

std::vector<double> numbers_of(const Graph& graph, OpKind kind, const char* key) {
  std::vector<double> found;
  for (const Op& op : graph.ops())
    if (op.kind == kind) found.push_back(op.attr_float(key));
  return found;
}

Graph loss_of(const nlohmann::json& config, DType dtype) {
  return build_loss(parse_model_spec(config, "c"), {32, 4, 8}, dtype, 8, Mode::train, "loss");
}

// Gemma rounds the factor of its embeddings to the type of the weights: 59.867 is 59.75 in bf16.
TEST(Decoder, factors_are_where_the_families_have_them) {
  using testing::ElementsAre;
  const nlohmann::json gemma = sized("gemma2", {3584, 128, 1, 4, 1, 16, 100});
  EXPECT_THAT(numbers_of(loss_of(gemma, DType::bf16), OpKind::scale, "factor"), ElementsAre(59.75));
  EXPECT_THAT(numbers_of(loss_of(gemma, DType::f32), OpKind::scale, "factor"),
              ElementsAre(testing::DoubleNear(std::sqrt(3584.0), 1e-5)));
  nlohmann::json granite = sized("granite", {64, 128, 1, 4, 1, 16, 100});
  granite.update({{"embedding_multiplier", 12},
                  {"attention_multiplier", 0.125},
                  {"residual_multiplier", 0.22},
                  {"logits_scaling", 8}});
  const Graph graph = loss_of(granite, DType::f32);
  EXPECT_THAT(numbers_of(graph, OpKind::scale, "factor"), ElementsAre(12.0, 0.22, 0.22));
  EXPECT_THAT(numbers_of(graph, OpKind::attention, "scale"), ElementsAre(0.125));
  EXPECT_THAT(numbers_of(graph, OpKind::linear_cross_entropy, "factor"), ElementsAre(0.125));
}

TEST(Decoder, norms_of_olmo_stand_behind_attention_and_mlp_and_round_last) {
  const Graph graph = loss_of(sized("olmo2", {64, 128, 1, 4, 2, 16, 100}), DType::f32);
  std::vector<std::string> order;  // of norms and of the products that they follow
  for (const Op& op : graph.ops()) {
    if (op.kind != OpKind::rms_norm && op.kind != OpKind::linear) continue;
    const std::string scope(op.scope);
    order.push_back(scope.substr(scope.rfind('.') + 1));
    if (op.kind == OpKind::rms_norm) {
      EXPECT_EQ(op.attr_text("form"), "round_last") << scope;
    }
  }
  EXPECT_THAT(order, testing::ElementsAre("q_proj", "q_norm", "k_proj", "k_norm", "v_proj", "o_proj",
                                          "post_attention_layernorm", "gate_proj", "up_proj", "down_proj",
                                          "post_feedforward_layernorm", "norm"));
}

TEST(Decoder, queries_of_ministral3_have_a_table_of_their_own_and_padding_rows_are_named) {
  nlohmann::json config = sized("ministral3", {64, 128, 1, 4, 2, 16, 100});
  config["pad_token_id"] = 7;
  const Graph graph = loss_of(config, DType::f32);
  const std::vector<Attrs> tables = attributes_of(graph, OpKind::rope_table);
  ASSERT_EQ(tables.size(), 2U);
  EXPECT_FALSE(tables[0].contains("position_beta"));
  EXPECT_TRUE(tables[1].contains("position_beta"));
  ASSERT_EQ(attributes_of(graph, OpKind::embedding).size(), 1U);
  for (const Op& op : graph.ops())
    if (op.kind == OpKind::embedding) {
      EXPECT_EQ(op.attr_int("padding_row"), 7);
    }
}

TEST(Decoder, norms_of_gemma_begin_at_zero_and_do_not_decay) {
  const ModelSpec spec = parse_model_spec(sized("gemma3_text", {64, 128, 2, 4, 1, 16, 100}), "c");
  const Graph graph = build_loss(spec, {32, 4, 8}, DType::f32, 8, Mode::train, "loss");
  int norms = 0;
  for (const Tensor& tensor : graph.tensors()) {
    if (tensor.role != Role::frozen_weight || tensor.shape.rank() != 1) continue;
    ++norms;
    EXPECT_EQ(tensor.parameter.init, Initialiser::zeros) << tensor.name;
    EXPECT_FALSE(tensor.parameter.decays) << tensor.name;
  }
  EXPECT_EQ(norms, 2 * 6 + 1);
  for (const Attrs& attrs : attributes_of(graph, OpKind::rms_norm)) EXPECT_TRUE(attrs.contains("form"));
}

TEST(Decoder, graphs_obey_the_rules) {
  nlohmann::json config = qwen25_05b();
  config["num_hidden_layers"] = 2;
  const ModelSpec spec = parse_model_spec(config, "c");
  verify(build_loss(spec, {32, 2, 16}, DType::bf16, 8, Mode::train, "loss"));
  verify(build_logits(spec, {32, 2, 16}, DType::bf16));
  for (const int64_t sequences : {1, 4})
    for (const Graph& program : build_generation(spec, {64, 16, sequences}, DType::bf16)) verify(program);
}

std::vector<float> frequencies_of(const nlohmann::json& config, int64_t length) {
  const ModelSpec spec = parse_model_spec(config, "c");
  std::vector<float> frequencies(static_cast<size_t>(spec.head_dim / 2 + 1));
  rope_frequencies(spec.rope, spec.head_dim, length, frequencies);
  return frequencies;
}

TEST(Rope, layers_without_rotation_are_turned_by_0) {
  std::vector<float> frequencies(9, 7.0F);
  rope_frequencies({.type = RopeType::none}, 16, 128, frequencies);
  EXPECT_EQ(frequencies, (std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 1}));
}

TEST(Rope, dynamic_scaling_starts_beyond_the_original_length) {
  nlohmann::json config = qwen25_05b();
  config["max_position_embeddings"] = 64;
  const auto plain = frequencies_of(config, 128);
  config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2.0}};
  EXPECT_EQ(frequencies_of(config, 64), plain);
  EXPECT_NE(frequencies_of(config, 65), plain);
}

}  // namespace
}  // namespace plimsoll
