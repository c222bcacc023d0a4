// A model's sizes and kind, as its config.json states them, with the family's defaults filled in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/norm/norm_form.h"

namespace plimsoll {

enum class RopeType : uint8_t { none, standard, linear, dynamic, llama3, yarn, longrope };

// Rotary position embedding and its scaling, as transformers' modeling_rope_utils reads it.
struct RopeSpec {
  RopeType type = RopeType::standard;
  double theta = 10000.0;
  double factor = 1.0;
  int64_t original_length = 0;  // original_max_position_embeddings, else max_position_embeddings
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  double attention_factor = 1.0;                         // yarn, longrope
  bool truncate = true;                                  // yarn
  // longrope: frequencies are divided by these, by the second of sequences longer than original_length.
  std::vector<float> short_factors = {}, long_factors = {};

  // Returns true if a sequence's frequencies depend on its length, which is at most `longest`.
  [[nodiscard]] bool goes_by_length(int64_t longest) const {
    return type == RopeType::dynamic || (type == RopeType::longrope && longest > original_length);
  }
};

// An encoder that reads one text and a decoder that writes another (T5).
struct EncoderDecoderSpec {
  int64_t encoder_layers = 0, decoder_layers = 0;
  int64_t relative_buckets = 0, relative_distance = 0;  // of the bias by distance
  double dropout = 0;                                   // in training, wherever the family has it
  bool gated = false;                                   // the MLP: gelu(gate) * up, else relu
  bool scales_head = false;                             // what the head reads, by 1 / sqrt(hidden)
  int64_t start_token = 0;                              // that a target begins with
  int64_t pad_token = 0;                                // that a decoder reads where there is no label
  int64_t end_token = 1;                                // that a text ends with, which a head scores it at
  double head_dropout = 0;                              // in training, of that head
};

// An encoder alone, of whose first token scores are made (BERT, RoBERTa). A sequence is [CLS] a [SEP] or
// [CLS] a [SEP] b [SEP], in the model's own words.
struct EncoderSpec {
  enum class Activation : uint8_t { gelu, gelu_tanh, relu };
  Activation activation = Activation::gelu;
  int64_t token_types = 2;      // of first and second texts
  int64_t position_rows = 512;  // of the table of trained positions
  bool counts_from_padding =
      false;  // the first position is the padding's id plus 1, and padding is not counted
  double layer_norm_eps = 1e-12;
  double dropout = 0, attention_dropout = 0, head_dropout = 0;  // in training, wherever the family has it
  // The layer between the first token and the head; empty: a part of the head. Checkpoints that were trained
  // for words alone lack it: then it is new, as the head is.
  std::string pooler;
  bool fresh_pooler = false;
  // The first layer of the head for masked words, in the same way.
  std::string words_layer;
  bool fresh_words = false;
  bool words_bias = true;  // beside that head's products
  // ModernBERT: what norms and the layer before the head have, the head's activation, dropout inside of MLPs, and if
  // scores are made of the mean of all tokens instead of the first.
  bool norm_bias = true, head_bias = true, pools_mean = false;
  Activation head_activation = Activation::gelu;
  double mlp_dropout = 0;
};

// Gated linear attention instead of softmax attention: a state [key_dim, value_dim] for each key-value head.
struct LinearAttentionSpec {
  int64_t key_dim = 0, value_dim = 0;  // of a head
  std::optional<double> clamp_min;     // of a decay's logarithm
  int64_t conv_taps = 0;               // of a causal convolution behind q, k and v; 0: none
  bool output_gate = true;
  bool fused_norm = true;  // how fla names the norm per head where there is an output gate
};

// Gated delta rule (Qwen3.5): layers with a state [key_dim, value_dim] for each value head, between layers of
// attention.
struct DeltaNetSpec {
  int64_t key_heads = 0, value_heads = 0;  // value head j has the keys of head j / (value_heads / key_heads)
  int64_t key_dim = 0, value_dim = 0;      // of a head
  int64_t conv_taps = 0;                   // of the causal convolution behind q, k and v together
  std::vector<bool> attends;               // by layer: attention instead

  [[nodiscard]] int64_t key_width() const { return key_heads * key_dim; }
  [[nodiscard]] int64_t value_width() const { return value_heads * value_dim; }
};

struct ModelSpec {
  std::string family;        // "llama", "gla", ...: a model_type
  std::string architecture;  // "LlamaForCausalLM", or "LlamaForSequenceClassification"
  // The model_type of the model of images around this one (models/wrapper.h), empty without; and the module of the
  // embedding, the layers and the last norm.
  std::string wrapper = {};
  std::string body = "model";
  int64_t hidden = 0, mlp_width = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  int64_t max_positions = 0;
  int64_t rotary_dim = 0;  // values of a head that RoPE turns, the first; 0: all
  double rms_norm_eps = 1e-6;
  bool tied_head = false;
  bool scores_sequences = false;  // the checkpoint has a head `score` instead of one for next tokens
  // Scores come of a value head as trainers of reward models in TRL's way put it above a model that writes:
  // with a bias, and dropout before it in training.
  bool value_head = false;
  double value_dropout = 0.1;
  // Scores are the logits of these tokens by the head for next tokens, instead of a head of their own: behind
  // a text, or where an encoder and a decoder begin to write.
  std::vector<int32_t> words;
  int64_t labels = 0;  // scores of that head: num_labels or id2label; 0 where neither is there
  // Padding, which no score is read from: pad_token_id, or eos_token_id where that is absent, as trainers of
  // such models have it. Nullopt: the last token counts.
  std::optional<int64_t> pad_token;
  // The row of the embedding that is not trained where it is read, as torch's padding_idx has it:
  // pad_token_id, where the family's embedding has one.
  std::optional<int64_t> padding_row;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  // One matrix makes queries, keys and values, one the MLP's gates and values (Phi-3): qkv_proj, gate_up_proj.
  bool fused_matrices = false;
  double residual_dropout = 0;   // in training, of what attention and MLP add
  bool qk_norm = false;          // of queries and keys, by head
  bool qk_norm_of_rows = false;  // over all heads of a token together instead
  NormForm norm_form = NormForm::round_first;
  // A layer's norms: before attention and MLP, and behind them, before what they made is added.
  bool norms_before = true, norms_behind = false;
  bool gelu_gate = false;  // of the MLP: gelu by tanh, else silu
  double query_position_beta =
      0;                         // queries are times 1 + it * ln(1 + floor(position / rope.original_length))
  double attention_scale = 0;    // 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;  // 0: none
  // Embeddings are times this, rounded to the type of the weights where that is how the family has it.
  double embedding_factor = 1.0;
  bool rounds_embedding_factor = false;
  double residual_factor = 1.0;  // of what attention and MLP add
  double logit_factor = 1.0;
  double logit_softcap = 0;  // of all logits, those of losses and scores among them; 0: none
  double initializer_range = 0.02;
  RopeSpec rope;
  // Layers that are not rotated by `rope` (SmolLM3 has some without rotation): their settings, and for each layer
  // 0, by `rope`, or the place in `other_ropes` plus 1. Empty: every layer by `rope`.
  std::vector<RopeSpec> other_ropes;
  std::vector<int64_t> rope_of_layer;
  std::optional<LinearAttentionSpec> linear_attention;
  std::optional<DeltaNetSpec> delta_net;
  std::vector<int64_t> windows;  // per layer: 0 = full causal attention, else the sliding window
  std::optional<EncoderDecoderSpec> encoder_decoder;  // `layers` counts those of both
  std::optional<EncoderSpec> encoder;

  // Values of a head that RoPE turns.
  [[nodiscard]] int64_t rotary() const { return rotary_dim > 0 ? rotary_dim : head_dim; }
  // Layers with scores of each query and key.
  [[nodiscard]] int64_t attending_layers() const {
    return delta_net ? std::ranges::count(delta_net->attends, true) : layers;
  }
  // Returns true if layers keep a state of constant size that has taken in all of the text.
  [[nodiscard]] bool carries_state() const { return linear_attention || delta_net; }
  // Returns true if a layer is rotated by `rope`.
  [[nodiscard]] bool is_rotated(int64_t layer) const {
    return rope_of_layer.empty() || rope_of_layer[static_cast<size_t>(layer)] == 0;
  }
  // Layers of each of its stacks of equals, a few of which tell of all.
  [[nodiscard]] std::vector<int64_t> stacks() const;
  // The same model with so many layers of each stack.
  [[nodiscard]] ModelSpec with_stacks(const std::vector<int64_t>& depths) const;

  // Longest text that the model's positions allow; none where they continue to any length.
  [[nodiscard]] std::optional<int64_t> longest_text() const;
  // "Qwen2, 24 layers, 494.0 M parameters"-style name for reports.
  [[nodiscard]] std::string describe() const;
};

// Throws UsageError naming file and key for what is missing, absurd, or asked for but not supported.
ModelSpec read_model_spec(const std::filesystem::path& config_file);
ModelSpec parse_model_spec(const nlohmann::json& config, const std::string& where);

// Fills `out` [rotary/2 + 1] with the inverse frequencies for one sequence of `length` tokens and, last, the attention
// factor; zeros and 1 for RopeType::none. The dynamic scaling and longrope depend on the length. Allocates nothing.
void rope_frequencies(const RopeSpec& rope, int64_t rotary, int64_t length, std::span<float> out);
// The program's input that they are written to: of `rope` (0), or of other_ropes[which - 1].
std::string rope_input(size_t which);

}  // namespace plimsoll
