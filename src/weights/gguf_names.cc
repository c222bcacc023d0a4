#include "weights/gguf_names.h"

#include <array>
#include <charconv>
#include <string_view>

#include "base/format.h"
#include "models/parameter_names.h"

namespace plimsoll {
namespace {

// Beginnings and ends of names, as checkpoints have them and as GGUF does.
struct NamePair {
  std::string_view theirs, ours;
};
constexpr std::array kWhole = {NamePair{"model.embed_tokens", "token_embd"},
                               NamePair{"model.norm", "output_norm"}, NamePair{"lm_head", "output"}};
constexpr std::array kParts = {
    NamePair{"input_layernorm", "attn_norm"},    NamePair{"post_attention_layernorm", "ffn_norm"},
    NamePair{"self_attn.q_proj", "attn_q"},      NamePair{"self_attn.k_proj", "attn_k"},
    NamePair{"self_attn.v_proj", "attn_v"},      NamePair{"self_attn.o_proj", "attn_output"},
    NamePair{"self_attn.q_norm", "attn_q_norm"}, NamePair{"self_attn.k_norm", "attn_k_norm"},
    NamePair{"mlp.gate_proj", "ffn_gate"},       NamePair{"mlp.up_proj", "ffn_up"},
    NamePair{"mlp.down_proj", "ffn_down"},       NamePair{"self_attn.qkv_proj", "attn_qkv"},
    NamePair{"mlp.gate_up_proj", "ffn_up"}};

// The gated delta rule's; its family has another name for the norm before the MLP.
constexpr std::array kDeltaParts = {NamePair{"post_attention_layernorm", "post_attention_norm"},
                                    NamePair{"linear_attn.in_proj_qkv", "attn_qkv"},
                                    NamePair{"linear_attn.in_proj_z", "attn_gate"},
                                    NamePair{"linear_attn.in_proj_b", "ssm_beta"},
                                    NamePair{"linear_attn.in_proj_a", "ssm_alpha"},
                                    NamePair{"linear_attn.conv1d", "ssm_conv1d"},
                                    NamePair{"linear_attn.norm", "ssm_norm"},
                                    NamePair{"linear_attn.out_proj", "ssm_out"},
                                    NamePair{"linear_attn.A_log", "ssm_a"},
                                    NamePair{"linear_attn.dt_bias", "ssm_dt.bias"}};

constexpr std::string_view kDelta = ".linear_attn.";

// Families that have norms behind attention and MLP have another name for the norm before the MLP.
constexpr std::array kBehind = {NamePair{"post_attention_layernorm", "post_attention_norm"},
                                NamePair{"pre_feedforward_layernorm", "ffn_norm"},
                                NamePair{"post_feedforward_layernorm", "post_ffw_norm"}};
constexpr std::array kArchitectures = {
    NamePair{"mistral", "llama"}, NamePair{"ministral", "llama"},     NamePair{"gemma3_text", "gemma3"},
    NamePair{"olmo3", "olmo2"},   NamePair{"qwen3_5_text", "qwen35"}, NamePair{"ministral3", "mistral3"}};

template <size_t count>
std::string_view renamed(const std::array<NamePair, count>& names, std::string_view name) {
  for (const auto& [theirs, ours] : names)
    if (name == theirs) return ours;
  return "";
}

// Architectures whose rotation pairs neighbours there and not halves.
bool pairs_neighbours(const ModelSpec& model) {
  const std::string architecture = gguf_architecture(model);
  return architecture == "llama" || architecture == "smollm3" || architecture == "granite" ||
         architecture == "mistral3";
}

}  // namespace

std::string gguf_architecture(const ModelSpec& model) {
  const std::string_view other = renamed(kArchitectures, model.family);
  return other.empty() ? model.family : std::string(other);
}

std::string gguf_name(const ModelSpec& model, const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return "";
  std::string ending = name.substr(dot), stem = name.substr(0, dot);
  if (ending != ".weight" && ending != ".bias") {
    if (!model.delta_net) return "";
    stem = name;  // of A_log and dt_bias, whose names are those of their tensors
    ending.clear();
  }
  if (!model.wrapper.empty() && stem.starts_with(model.body + "."))
    stem.replace(0, model.body.size(), "model");
  if (const auto whole = renamed(kWhole, stem); !whole.empty()) return std::string(whole) + ending;
  if (!stem.starts_with(kLayers)) return "";
  const std::string_view rest = std::string_view(stem).substr(kLayers.size());
  const size_t end = rest.find('.');
  if (end == std::string_view::npos) return "";
  const std::string_view module = rest.substr(end + 1);
  auto part = model.norms_behind ? renamed(kBehind, module) : std::string_view();
  if (model.delta_net) part = renamed(kDeltaParts, module);
  if (part.empty()) part = renamed(kParts, module);
  return part.empty() ? "" : formatted("blk.{}.{}{}", rest.substr(0, end), part, ending);
}

int64_t gguf_layer(const std::string& gguf_name) {
  constexpr std::string_view kBlocks = "blk.";
  int64_t layer = -1;
  if (gguf_name.starts_with(kBlocks))
    std::from_chars(gguf_name.data() + kBlocks.size(), gguf_name.data() + gguf_name.size(), layer);
  return layer;
}

namespace {

// The form of a tensor of a layer with a delta rule.
GgufForm delta_form(const DeltaNetSpec& delta, const std::string& name) {
  GgufForm form;
  const std::string_view module = std::string_view(name).substr(name.find(kDelta) + kDelta.size());
  form.rates = module == "A_log";
  form.squeezed = module == "conv1d.weight";
  if (module == "norm.weight") return form;
  form.heads = {.key_heads = delta.key_heads,
                .group = delta.value_heads / delta.key_heads,
                .size = delta.value_dim,
                .columns = module == "out_proj.weight"};
  if (module == "in_proj_qkv.weight" || form.squeezed) form.heads.first = 2 * delta.key_width();
  if (form.rates || module == "dt_bias" || module == "in_proj_a.weight" || module == "in_proj_b.weight")
    form.heads.size = 1;
  return form;
}

}  // namespace

GgufForm gguf_form(const ModelSpec& model, const std::string& name) {
  if (model.delta_net && name.find(kDelta) != std::string::npos) return delta_form(*model.delta_net, name);
  GgufForm form;
  if (name.ends_with("norm.weight") && model.norm_form == NormForm::plus_one) form.added = 1.0F;
  const bool rotated =
      name.find(".q_proj.") != std::string::npos || name.find(".k_proj.") != std::string::npos;
  if (rotated && pairs_neighbours(model)) form.head_rows = model.head_dim;
  return form;
}

ModelFolder open_weights(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kGgufFile;
  if (has_weights(folder) || !std::filesystem::exists(file)) return ModelFolder::open(folder);
  const ModelSpec model = read_model_spec(folder / "config.json");
  std::vector<GgufPart> parts;
  for (const std::string& name : parameter_names(model))
    parts.push_back({name, gguf_name(model, name), gguf_form(model, name)});
  return ModelFolder::of(folder, std::make_shared<const GgufCheckpoint>(file, parts));
}

}  // namespace plimsoll
