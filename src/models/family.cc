#include "models/family.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "models/wrapper.h"

namespace plimsoll {
namespace {

constexpr std::array kFamilies = {
#define FAMILY(name) &name##_family,
#include "models/families.def"
#undef FAMILY
};

const FamilyRule* find(std::string_view model_type) {
  const auto* at = std::find_if(kFamilies.begin(), kFamilies.end(),
                                [&](const FamilyRule* rule) { return rule->model_type == model_type; });
  return at == kFamilies.end() ? nullptr : *at;
}

// Known types that are refused: what each needs, and the nearest family that works. The first line whose word is a part
// of the type counts.
struct Missing {
  std::string_view word, what, nearest;
};
constexpr std::array kMissing = {
    Missing{"t5gemma",
            "an encoder and a decoder of Gemma's layers, each with sizes, rotary positions and a table of "
            "embeddings of its own",
            "t5"},
    Missing{"gemma3n", "embeddings by layer and shared keys", "gemma3_text"},
    Missing{"gemma4", "embeddings by layer and shared keys", "gemma3_text"},
    Missing{"deepseek", "latent attention (MLA) and experts", "llama"},
    Missing{"kimi", "latent attention (MLA) and experts", "llama"},
    Missing{"minicpm3", "latent attention (MLA)", "llama"},
    Missing{"granitemoehybrid", "Mamba 2 layers and experts", "granite"},
    Missing{"nemotron_h", "Mamba 2 layers", "llama"},
    Missing{"falcon_h1", "Mamba 2 layers", "llama"},
    Missing{"bamba", "Mamba 2 layers", "llama"},
    Missing{"zamba", "Mamba 2 layers", "llama"},
    Missing{"jamba", "Mamba layers and experts", "llama"},
    Missing{"mamba", "Mamba layers", "gla"},
    Missing{"lfm2", "convolution layers", "qwen3"},
    Missing{"qwen3_5_moe", "a mixture of experts", "qwen3_5_text"},
    Missing{"phimoe", "a mixture of experts", "phi3"},
    Missing{"phi4_multimodal", "images and speech", "phi3"},
    Missing{"granitemoe", "a mixture of experts", "granite"},
    Missing{"qwen2_moe", "a mixture of experts", "qwen2"},
    Missing{"qwen3_moe", "a mixture of experts", "qwen3"},
    Missing{"mixtral", "a mixture of experts", "mistral"},
    Missing{"olmoe", "a mixture of experts", "olmo2"},
    Missing{"llama4", "a mixture of experts", "llama"},
    Missing{"gpt_oss", "a mixture of experts and attention with sinks", "qwen3"},
    Missing{"_moe", "a mixture of experts", "qwen3"},
    Missing{"qwen2_5_vl", "training on images", "qwen2"},
    Missing{"qwen2_vl", "training on images", "qwen2"},
    Missing{"qwen3_vl", "training on images", "qwen3"},
    Missing{"mllama", "training on images", "llama"},
    Missing{"llava", "training on images", "llama"},
    Missing{"idefics", "training on images", "llama"},
    Missing{"paligemma", "training on images", "gemma2"},
    Missing{"deberta", "attention by relative positions of both sides", "modernbert"},
    Missing{"distilbert", "layers under other names", "bert"},
    Missing{"electra", "embeddings of another width", "bert"},
    Missing{"albert", "layers that share weights", "bert"},
    Missing{"gpt2", "learned positions, and layers with biases and without a gate", "llama"},
    Missing{"gpt_neox", "attention and MLP side by side, and rotary positions of a part of a head", "llama"},
    Missing{"opt", "learned positions, and layers with biases and without a gate", "llama"},
    Missing{"bloom", "ALiBi instead of positions, and layers without a gate", "llama"},
};

// Beginnings of names of models, without their owner and in small letters, whose types are refused.
struct NamedType {
  std::string_view beginning, type;
};
constexpr std::array kNamedTypes = {
    NamedType{"gpt2", "gpt2"},
    NamedType{"distilgpt2", "gpt2"},
    NamedType{"dialogpt", "gpt2"},
    NamedType{"cerebras-gpt", "gpt2"},
    NamedType{"gpt-neox", "gpt_neox"},
    NamedType{"pythia-", "gpt_neox"},
    NamedType{"gpt-neo-", "gpt_neo"},
    NamedType{"gpt-j-", "gptj"},
    NamedType{"opt-", "opt"},
    NamedType{"bloom-", "bloom"},
    NamedType{"bloomz-", "bloom"},
    NamedType{"falcon-mamba", "falcon_mamba"},
    NamedType{"falcon-h1", "falcon_h1"},
    NamedType{"falcon-7b", "falcon"},
    NamedType{"falcon-40b", "falcon"},
    NamedType{"falcon-180b", "falcon"},
    NamedType{"mpt-7b", "mpt"},
    NamedType{"mpt-30b", "mpt"},
    NamedType{"phi-1", "phi"},
    NamedType{"phi-2", "phi"},
    NamedType{"starcoder2-", "starcoder2"},
    NamedType{"starcoder", "gpt_bigcode"},
    NamedType{"codegen-", "codegen"},
    NamedType{"mamba2-", "mamba2"},
    NamedType{"mamba-", "mamba"},
    NamedType{"stablelm-2-", "stablelm"},
    NamedType{"gemma-2b", "gemma"},
    NamedType{"gemma-7b", "gemma"},
    NamedType{"gemma-1.1", "gemma"},
    NamedType{"codegemma-", "gemma"},
    NamedType{"gemma-3n", "gemma3n"},
    NamedType{"deepseek-v2", "deepseek_v2"},
    NamedType{"deepseek-v3", "deepseek_v3"},
    NamedType{"llama-4-", "llama4"},
    NamedType{"mixtral-", "mixtral"},
    NamedType{"olmoe-", "olmoe"},
    NamedType{"qwen2-vl", "qwen2_vl"},
    NamedType{"qwen2.5-vl", "qwen2_5_vl"},
    NamedType{"qwen3-vl", "qwen3_vl"},
    NamedType{"c4ai-command-r", "cohere"},
    NamedType{"bart-", "bart"},
    NamedType{"mbart-", "mbart"},
    NamedType{"pegasus-", "pegasus"},
    NamedType{"opus-mt-", "marian"},
    NamedType{"nllb-", "m2m_100"},
    NamedType{"m2m100", "m2m_100"},
    NamedType{"distilbert-", "distilbert"},
    NamedType{"deberta-", "deberta-v2"},
    NamedType{"albert-", "albert"},
    NamedType{"electra-", "electra"},
    NamedType{"xlnet-", "xlnet"},
    NamedType{"longformer-", "longformer"},
    NamedType{"whisper-", "whisper"},
};

std::string refusal_of_type(std::string_view type) {
  const auto* missing = std::find_if(kMissing.begin(), kMissing.end(), [&](const Missing& one) {
    return type.find(one.word) != std::string::npos;
  });
  const std::string why =
      missing == kMissing.end()
          ? ""
          : formatted(" (it needs {}); the nearest that works is {}", missing->what, missing->nearest);
  std::vector<std::string> known;
  for (const FamilyRule* rule : kFamilies) known.emplace_back(rule->model_type);
  for (const std::string& wrapper : wrapper_types()) known.push_back(wrapper);
  return formatted("model_type '{}' is not supported{}; supported: {}", type, why, join(known, ", "));
}

}  // namespace

std::string refusal_of_name(std::string_view name) {
  const std::string bare = in_small_letters(name.substr(name.rfind('/') + 1));
  for (const NamedType& one : kNamedTypes)
    if (bare.starts_with(one.beginning)) return refusal_of_type(one.type);
  return "";
}

const FamilyRule& family_of(const ConfigReader& in) {
  const std::string type = in.text("model_type", "");
  if (const FamilyRule* rule = find(type)) return *rule;
  in.fail(refusal_of_type(type));
}

const FamilyRule& family_of(const ModelSpec& spec) {
  const FamilyRule* rule = find(spec.family);
  check_internal(rule != nullptr, "a model of no family");
  return *rule;
}

std::string embedding_module(const ModelSpec& spec) {
  constexpr std::string_view kModel = "model.";
  const std::string_view module = family_of(spec).embedding;
  if (!module.starts_with(kModel)) return std::string(module);
  return formatted("{}.{}", spec.body, module.substr(kModel.size()));
}

std::vector<std::string> unquantised_modules(const ModelSpec& spec) {
  const std::string_view end = family_of(spec).unquantised;
  return end.empty() ? std::vector<std::string>() : std::vector<std::string>{std::string(end)};
}

std::string scoring_architecture(const FamilyRule& family) {
  if (!family.scoring_name.empty()) return std::string(family.scoring_name);
  return std::string(family.architecture.substr(0, family.architecture.find("For"))) +
         "ForSequenceClassification";
}

}  // namespace plimsoll
