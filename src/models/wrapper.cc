#include "models/wrapper.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"

namespace plimsoll {
namespace {

using Json = nlohmann::json;

constexpr const char* kTextConfig = "text_config";
constexpr const char* kTied = "tie_word_embeddings";

std::vector<std::string_view> siglip_layer() {
  return {"self_attn.q_proj.weight",
          "self_attn.q_proj.bias",
          "self_attn.k_proj.weight",
          "self_attn.k_proj.bias",
          "self_attn.v_proj.weight",
          "self_attn.v_proj.bias",
          "self_attn.out_proj.weight",
          "self_attn.out_proj.bias",
          "layer_norm1.weight",
          "layer_norm1.bias",
          "layer_norm2.weight",
          "layer_norm2.bias",
          "mlp.fc1.weight",
          "mlp.fc1.bias",
          "mlp.fc2.weight",
          "mlp.fc2.bias"};
}

std::vector<std::string_view> pixtral_layer() {
  return {"attention.q_proj.weight",       "attention.k_proj.weight",     "attention.v_proj.weight",
          "attention.o_proj.weight",       "attention_norm.weight",       "ffn_norm.weight",
          "feed_forward.gate_proj.weight", "feed_forward.up_proj.weight", "feed_forward.down_proj.weight"};
}

std::vector<std::string_view> qwen_layer() {
  return {"norm1.weight",          "norm1.bias",          "norm2.weight",          "norm2.bias",
          "attn.qkv.weight",       "attn.qkv.bias",       "attn.proj.weight",      "attn.proj.bias",
          "mlp.linear_fc1.weight", "mlp.linear_fc1.bias", "mlp.linear_fc2.weight", "mlp.linear_fc2.bias"};
}

const std::vector<WrapperRule>& wrappers() {
  static const std::vector<WrapperRule> kWrappers = {
      {.model_type = "gemma3",
       .architecture = "Gemma3ForConditionalGeneration",
       .texts = {"gemma3_text"},
       .scores = true,
       .ignores_logit_cap = true,
       .parts = {"embeddings.patch_embedding.weight", "embeddings.patch_embedding.bias",
                 "embeddings.position_embedding.weight", "post_layernorm.weight", "post_layernorm.bias",
                 "multi_modal_projector.mm_input_projection_weight",
                 "multi_modal_projector.mm_soft_emb_norm.weight"},
       .layer_parts = siglip_layer()},
      {.model_type = "mistral3",
       .architecture = "Mistral3ForConditionalGeneration",
       .texts = {"mistral", "ministral3", "ministral"},
       .parts = {"patch_conv.weight", "ln_pre.weight", "multi_modal_projector.linear_1.weight",
                 "multi_modal_projector.linear_2.weight", "multi_modal_projector.norm.weight",
                 "multi_modal_projector.patch_merger.merging_layer.weight"},
       .layer_parts = pixtral_layer()},
      {.model_type = "qwen3_5",
       .architecture = "Qwen3_5ForConditionalGeneration",
       .texts = {"qwen3_5_text"},
       .scores = true,
       .parts = {"patch_embed.proj.weight", "patch_embed.proj.bias", "pos_embed.weight", "merger.norm.weight",
                 "merger.norm.bias", "merger.linear_fc1.weight", "merger.linear_fc1.bias",
                 "merger.linear_fc2.weight", "merger.linear_fc2.bias"},
       .layer_parts = qwen_layer(),
       .layers_key = "depth",
       .layers = ".blocks."},
  };
  return kWrappers;
}

// The head is tied as the outer class says. Files of before that key was written there have the text model's.
bool ties_head(const ConfigReader& outer, const ConfigReader& text, bool otherwise) {
  return outer.flag(kTied, text.flag(kTied, otherwise));
}

}  // namespace

const WrapperRule* find_wrapper(std::string_view model_type) {
  const auto& all = wrappers();
  const auto found =
      std::ranges::find_if(all, [&](const WrapperRule& rule) { return rule.model_type == model_type; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> wrapper_types() {
  std::vector<std::string> types;
  for (const WrapperRule& rule : wrappers()) types.emplace_back(rule.model_type);
  return types;
}

Json text_config(const ConfigReader& outer, const WrapperRule& wrapper) {
  if (!outer.has(kTextConfig) || !outer.at(kTextConfig).is_object())
    outer.fail(
        formatted("'{}' is missing: a {} has its text model's keys there", kTextConfig, wrapper.model_type));
  Json text = outer.at(kTextConfig);
  const ConfigReader in(text, formatted("{}: {}", outer.where(), kTextConfig));
  const std::string type = in.text("model_type", std::string(wrapper.texts.front()));
  if (std::ranges::find(wrapper.texts, type) == wrapper.texts.end())
    in.fail(formatted("model_type '{}' is not supported within a {}; supported: {}", type, wrapper.model_type,
                      join(std::vector<std::string>(wrapper.texts.begin(), wrapper.texts.end()), ", ")));
  const bool tied = ties_head(outer, in, type == "gemma3_text");
  text["model_type"] = type;
  text[kTied] = tied;
  if (wrapper.ignores_logit_cap) text["final_logit_softcapping"] = nullptr;
  // Heads are described next to the text model.
  for (const char* key : {"architectures", "id2label", "num_labels", "summary_dropout_prob"}) {
    text.erase(key);
    if (outer.has(key)) text[key] = outer.at(key);
  }
  return text;
}

namespace {

// The first tensor of the tower that is not there; empty: all are.
std::string missing_part(const WrapperRule& wrapper, int64_t layers, std::span<const std::string> names) {
  const auto there = [&](const std::string& end) {
    return std::ranges::any_of(names, [&](const std::string& name) {
      return !name.starts_with(kTextModule) && name.ends_with(end);
    });
  };
  for (const std::string_view part : wrapper.parts)
    if (!there("." + std::string(part))) return std::string(part);
  for (int64_t layer = 0; layer < layers; ++layer)
    for (const std::string_view part : wrapper.layer_parts)
      if (const std::string end = formatted("{}{}.{}", wrapper.layers, layer, part); !there(end))
        return end.substr(1);
  return "";
}

}  // namespace

void require_whole(const std::string& wrapper, const Json& config, std::span<const std::string> names,
                   const std::string& where) {
  const WrapperRule* rule = find_wrapper(wrapper);
  if (rule == nullptr) return;
  const auto is_text = [](const std::string& name) { return name.starts_with(kTextModule); };
  if (std::ranges::none_of(names, is_text))
    throw UsageError(
        formatted("{}: has no weights of the text model that its config.json has in {}: none is named "
                  "language_model.model.* or {}.*",
                  where, kTextConfig, kTextModule));
  const auto vision = config.find("vision_config");
  if (vision == config.end() || !vision->is_object()) return;
  const ConfigReader tower(*vision, where + ": config.json: vision_config");
  const std::string missing = missing_part(*rule, tower.integer(rule->layers_key, 0, kMostLayers, 0), names);
  if (!missing.empty())
    throw UsageError(formatted(
        "{}: has no tensor '*.{}' of the tower or projector, which a saved {} needs; fetch the whole folder",
        where, missing, rule->architecture));
}

}  // namespace plimsoll
