#include "models/spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/regular_file.h"
#include "base/strings.h"
#include "base/units.h"

namespace plimsoll {
namespace {

using Json = nlohmann::json;

// A config larger than this is no config (real ones have a few KiB).
constexpr int64_t kLargestConfig = 4 * kMiB;
constexpr int kDeepest = 32;  // known ones have 4 levels
// Bounds beyond which a value is a mistake rather than a model; they also keep every product below 2^63.
constexpr int64_t kMostLayers = 2000;
constexpr int64_t kWidest = int64_t{1} << 20;
constexpr int64_t kLargestVocab = int64_t{1} << 24;
constexpr int64_t kDefaultWindow = 4096;

class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  [[noreturn]] void fail(const std::string& why) const { throw UsageError(where_ + ": " + why); }
  [[nodiscard]] bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  // Also as null, which says something else than nothing: no window, as many heads as there are.
  [[nodiscard]] bool names(const char* key) const { return json_.contains(key); }
  [[nodiscard]] const Json& at(const char* key) const { return json_.at(key); }

  [[nodiscard]] int64_t integer(const char* key, int64_t least, int64_t most) const {
    if (!has(key)) fail("'" + std::string(key) + "' is missing");
    const Json& value = json_.at(key);
    if (!value.is_number_integer()) fail("'" + std::string(key) + "' must be a whole number");
    const bool beyond = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
    if (beyond || value.get<int64_t>() < least || value.get<int64_t>() > most) {
      fail("'" + std::string(key) + "' is " + value.dump() + ", must be " + std::to_string(least) + " to " +
           std::to_string(most));
    }
    return value.get<int64_t>();
  }
  [[nodiscard]] int64_t integer(const char* key, int64_t least, int64_t most, int64_t otherwise) const {
    return has(key) ? integer(key, least, most) : otherwise;
  }
  [[nodiscard]] double number(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_number()) fail("'" + std::string(key) + "' must be a number");
    return json_.at(key).get<double>();
  }
  [[nodiscard]] double number(const char* key, double otherwise, double least, double most) const {
    const double value = number(key, otherwise);
    if (value < least || value > most)
      fail("'" + std::string(key) + "' is " + json_.at(key).dump() + ", must be " + Json(least).dump() +
           " to " + Json(most).dump());
    return value;
  }
  [[nodiscard]] bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_boolean()) fail("'" + std::string(key) + "' must be true or false");
    return json_.at(key).get<bool>();
  }
  [[nodiscard]] std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_string()) fail("'" + std::string(key) + "' must be a text");
    return json_.at(key).get<std::string>();
  }

 private:
  const Json& json_;
  std::string where_;
};

struct Family {
  const char* model_type;
  const char* architecture;
  bool qkv_bias;  // always; otherwise attention_bias decides
  bool qk_norm;
  int64_t head_dim;  // default of the class; 0: hidden / heads
  double rms_norm_eps;
  // Defaults of the configuration's class, for keys that are not there.
  int64_t kv_heads;  // 0: as many as heads
  int64_t max_positions;
};

constexpr std::array<Family, 4> kFamilies = {
    {{"llama", "LlamaForCausalLM", false, false, 0, 1e-6, 0, 2048},
     {"mistral", "MistralForCausalLM", false, false, 0, 1e-6, 8, 131072},
     {"qwen2", "Qwen2ForCausalLM", true, false, 0, 1e-6, 32, 32768},
     {"qwen3", "Qwen3ForCausalLM", false, true, 128, 1e-6, 32, 32768}}};

const Family& family_of(const Reader& in) {
  const std::string type = in.text("model_type", "");
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    if (type == family.model_type) return family;
    known.emplace_back(family.model_type);
  }
  in.fail("model_type '" + type + "' is not supported; supported: " + join(known, ", "));
}

constexpr std::string_view kCausal = "ForCausalLM";

// The name of the same decoder with a head that scores sequences.
std::string scoring_architecture(std::string_view causal) {
  return std::string(causal.substr(0, causal.size() - kCausal.size())) + "ForSequenceClassification";
}

// Keys that change the computation and that no kernel here honours.
void refuse_unsupported(const Reader& in, const Family& family) {
  const std::string act = in.text("hidden_act", "silu");
  if (act != "silu" && act != "swish") in.fail("hidden_act '" + act + "' is not supported; supported: silu");
  if (in.number("attention_dropout", 0.0) != 0.0)
    in.fail("attention_dropout is not supported; set it to 0.0");
  if (in.number("partial_rotary_factor", 1.0) != 1.0) in.fail("partial_rotary_factor is not supported");
  if (in.integer("pretraining_tp", 1, 1024, 1) != 1) in.fail("pretraining_tp other than 1 is not supported");
  if (in.has("architectures") && in.at("architectures").is_array() && !in.at("architectures").empty()) {
    const auto name = in.at("architectures").front().is_string()
                          ? in.at("architectures").front().get<std::string>()
                          : std::string();
    if (name != family.architecture && name != scoring_architecture(family.architecture))
      in.fail("architecture '" + name + "' is not supported; supported for this model_type: " +
              family.architecture + ", " + scoring_architecture(family.architecture));
  }
}

void read_yarn(const Reader& rope, RopeSpec& spec) {
  spec.beta_fast = rope.number("beta_fast", 32.0);
  spec.beta_slow = rope.number("beta_slow", 1.0);
  spec.truncate = rope.flag("truncate", true);
  const auto mscale = [&](double m) {
    return spec.factor <= 1 ? 1.0 : 0.1 * m * std::log(spec.factor) + 1.0;
  };
  const double numerator = rope.number("mscale", 0.0);
  const double denominator = rope.number("mscale_all_dim", 0.0);
  const double inferred =
      numerator != 0.0 && denominator != 0.0 ? mscale(numerator) / mscale(denominator) : mscale(1.0);
  spec.attention_factor = rope.number("attention_factor", inferred);
}

// What transformers calls the original length: for llama3 and yarn the key beside the map before the one in
// it, for dynamic scaling the model's positions whatever is said.
int64_t original_length(const Reader& in, const Reader& rope, const std::string& type,
                        int64_t max_positions) {
  constexpr const char* kKey = "original_max_position_embeddings";
  const int64_t inside = rope.integer(kKey, 1, int64_t{1} << 40, max_positions);
  return type == "dynamic" ? max_positions : in.integer(kKey, 1, int64_t{1} << 40, inside);
}

// `rope_scaling` with `rope_theta` (before transformers 5) where it says something, else `rope_parameters`.
RopeSpec read_rope(const Reader& in, int64_t max_positions, const std::string& where) {
  RopeSpec spec;
  spec.theta = in.number("rope_theta", 10000.0);
  spec.original_length = max_positions;
  const bool old = in.has("rope_scaling") && !in.at("rope_scaling").empty();
  const char* key = old ? "rope_scaling" : "rope_parameters";
  if (spec.theta <= 0) in.fail("'rope_theta' must be positive");
  if (!in.has(key)) return spec;
  if (!in.at(key).is_object()) in.fail("'" + std::string(key) + "' must be a map");
  const Reader rope(in.at(key), where + ": " + key);
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  spec.theta = rope.number("rope_theta", spec.theta);
  spec.original_length = original_length(in, rope, type, max_positions);
  if (rope.number("partial_rotary_factor", 1.0) != 1.0) rope.fail("partial_rotary_factor is not supported");
  if (spec.theta <= 0) rope.fail("'rope_theta' must be positive");
  if (type == "default") return spec;
  if (!rope.has("factor")) rope.fail("'factor' is missing");
  spec.factor = rope.number("factor", 1.0);
  if (spec.factor <= 0) rope.fail("'factor' must be positive");
  if (type == "linear") {
    spec.type = RopeType::linear;
  } else if (type == "dynamic") {
    spec.type = RopeType::dynamic;
  } else if (type == "llama3") {
    spec.type = RopeType::llama3;
    spec.low_freq_factor = rope.number("low_freq_factor", 1.0);
    spec.high_freq_factor = rope.number("high_freq_factor", 4.0);
    if (spec.high_freq_factor <= spec.low_freq_factor)
      rope.fail("'high_freq_factor' must exceed 'low_freq_factor'");
  } else if (type == "yarn") {
    spec.type = RopeType::yarn;
    read_yarn(rope, spec);
  } else {
    rope.fail("rope type '" + type + "' is not supported; supported: default, linear, dynamic, llama3, yarn");
  }
  return spec;
}

// Each parameter may be fine and the frequencies not be: a factor of 1e-300, mscale against mscale_all_dim.
void require_finite_rope(const Reader& in, const ModelSpec& spec) {
  std::vector<float> frequencies(static_cast<size_t>(spec.head_dim / 2 + 1));
  rope_frequencies(spec, spec.max_positions, frequencies);
  if (!std::all_of(frequencies.begin(), frequencies.end(), [](float f) { return std::isfinite(f); }))
    in.fail(
        "the rope parameters (rope_theta, rope_parameters or rope_scaling) give frequencies that are not "
        "finite");
}

// Mistral: every layer; Qwen: from max_window_layers on, where use_sliding_window says so; layer_types
// decides first (transformers takes such a Mistral for a Ministral, which is the same but for that).
std::vector<int64_t> read_windows(const Reader& in, const Family& family, int64_t layers) {
  std::vector<int64_t> windows(static_cast<size_t>(layers), 0);
  const std::string_view type = family.model_type;
  if (type == "llama") return windows;
  const bool qwen = type == "qwen2" || type == "qwen3";
  if (qwen && !in.flag("use_sliding_window", false)) return windows;
  const int64_t window =
      in.integer("sliding_window", 1, int64_t{1} << 40, in.names("sliding_window") ? 0 : kDefaultWindow);
  if (window == 0) return windows;
  const int64_t first = qwen ? in.integer("max_window_layers", 0, kMostLayers, 28) : 0;
  for (int64_t i = 0; i < layers; ++i) windows[static_cast<size_t>(i)] = i >= first ? window : 0;
  if (in.has("layer_types")) {
    const Json& types = in.at("layer_types");
    if (!types.is_array() || types.size() != static_cast<size_t>(layers))
      in.fail("'layer_types' must list one type per layer");
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] != "sliding_attention" && types[i] != "full_attention")
        in.fail("'layer_types': " + types[i].dump() + " is not supported");
      windows[i] = types[i] == "sliding_attention" ? window : 0;
    }
  }
  return windows;
}

// Keeps every sum of bytes in 63 bits: each number may be within its bounds and their product beyond all
// sense.
void require_countable(const Reader& in, const ModelSpec& spec) {
  constexpr double kMost = 0x1p50;
  const auto real = [](int64_t number) { return static_cast<double>(number); };
  const double heads = real(2 * spec.heads + 2 * spec.kv_heads) * real(spec.head_dim);
  const double layer = real(spec.hidden) * (heads + 3 * real(spec.mlp_width));
  const double parameters = real(spec.layers) * layer + 2 * real(spec.hidden) * real(spec.vocab);
  if (parameters > kMost)
    in.fail(
        "the model would have more than 10^15 parameters; 'hidden_size', 'num_hidden_layers' and the rest "
        "are "
        "no model's");
}

// The head that scores sequences, where the checkpoint has one, and what it reads.
void read_scores(const Reader& in, const Family& family, ModelSpec& spec) {
  constexpr int64_t kMostLabels = int64_t{1} << 16;
  constexpr const char* kArchitectures = "architectures";
  if (in.has(kArchitectures) && in.at(kArchitectures).is_array() && !in.at(kArchitectures).empty() &&
      in.at(kArchitectures).front() == scoring_architecture(family.architecture)) {
    spec.scores_sequences = true;
    spec.architecture = scoring_architecture(family.architecture);
  }
  if (in.has("id2label") && in.at("id2label").is_object())
    spec.labels = static_cast<int64_t>(in.at("id2label").size());
  spec.labels = in.integer("num_labels", 1, kMostLabels, spec.labels);
  if (spec.scores_sequences && spec.labels == 0)
    spec.labels = 2;  // transformers' default, which it leaves out
  for (const char* key : {"pad_token_id", "eos_token_id"}) {
    if (spec.pad_token || !in.has(key)) continue;
    const Json& value = in.at(key);
    const Json& first = value.is_array() && !value.empty() ? value.front() : value;
    if (first.is_number_integer() && first.get<int64_t>() >= 0) spec.pad_token = first.get<int64_t>();
  }
}

}  // namespace

ModelSpec parse_model_spec(const Json& config, const std::string& where) {
  const Reader in(config, where);
  if (!config.is_object()) in.fail("is not a map of keys");
  const Family& family = family_of(in);
  refuse_unsupported(in, family);

  ModelSpec spec;
  spec.family = family.model_type;
  spec.architecture = family.architecture;
  spec.hidden = in.integer("hidden_size", 1, kWidest);
  spec.mlp_width = in.integer("intermediate_size", 1, kWidest);
  spec.layers = in.integer("num_hidden_layers", 1, kMostLayers);
  spec.heads = in.integer("num_attention_heads", 1, kWidest);
  spec.kv_heads =
      in.integer("num_key_value_heads", 1, kWidest,
                 in.names("num_key_value_heads") || family.kv_heads == 0 ? spec.heads : family.kv_heads);
  spec.vocab = in.integer("vocab_size", 1, kLargestVocab);
  spec.max_positions = in.integer("max_position_embeddings", 1, int64_t{1} << 40, family.max_positions);
  const int64_t default_head = family.head_dim > 0 ? family.head_dim : spec.hidden / spec.heads;
  spec.head_dim = in.integer("head_dim", 1, 256, default_head);
  if (!in.has("head_dim") && family.head_dim == 0 && spec.hidden % spec.heads != 0)
    in.fail("'hidden_size' must be a multiple of 'num_attention_heads' where 'head_dim' is not given");
  if (spec.heads % spec.kv_heads != 0)
    in.fail("'num_attention_heads' must be a multiple of 'num_key_value_heads'");
  if (spec.head_dim % 8 != 0 || spec.head_dim > 256)
    in.fail("a head size of " + std::to_string(spec.head_dim) +
            " is not supported: a multiple of 8 up to 256 is");
  spec.rms_norm_eps = in.number("rms_norm_eps", family.rms_norm_eps, 0.0, 1.0);
  spec.tied_head = in.flag("tie_word_embeddings", false);
  const bool bias = in.flag("attention_bias", false);
  spec.qkv_bias = family.qkv_bias || bias;
  spec.o_bias = !family.qkv_bias && bias;
  spec.mlp_bias = in.flag("mlp_bias", false);
  spec.qk_norm = family.qk_norm;
  spec.initializer_range = in.number("initializer_range", 0.02, 0.0, 1000.0);
  spec.rope = read_rope(in, spec.max_positions, where);
  require_finite_rope(in, spec);
  spec.windows = read_windows(in, family, spec.layers);
  read_scores(in, family, spec);
  require_countable(in, spec);
  return spec;
}

namespace {

ModelSpec read_text(const std::string& text, const std::string& where) {
  // Depth is bounded before values are built.
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest)
      throw DamagedError(where + ": is nested deeper than " + std::to_string(kDeepest) + " levels");
    return true;
  };
  Json config;
  try {
    config = Json::parse(text, shallow);
  } catch (const Json::exception& error) {
    const std::string reason = error.what();  // "[json.exception...] parse error at ..."
    throw DamagedError(
        where + ": is not valid JSON: " + reason.substr(std::min(reason.size(), reason.find("] ") + 2)));
  }
  return parse_model_spec(config, where);
}

}  // namespace

ModelSpec read_model_spec(const std::filesystem::path& config_file) {
  std::error_code unknown;
  if (std::filesystem::status(config_file, unknown).type() == std::filesystem::file_type::not_found)
    throw UsageError(config_file.string() + ": cannot be read; a model folder needs a config.json");
  return read_text(read_regular(config_file, kLargestConfig), config_file.string());
}

std::string ModelSpec::describe() const {
  return architecture.substr(0, architecture.find("For")) + ", " + std::to_string(layers) +
         (layers == 1 ? " layer" : " layers") + " of width " + std::to_string(hidden);
}

}  // namespace plimsoll
