#include "models/spec.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>

#include "base/error.h"
#include "base/format.h"
#include "base/regular_file.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "base/units.h"
#include "models/family.h"
#include "models/model_json.h"
#include "models/wrapper.h"

namespace plimsoll {
namespace {

using Json = nlohmann::json;

// A config larger than this is no config (real ones have a few KiB).
constexpr int64_t kLargestConfig = 4 * kMiB;
constexpr int kDeepest = 32;  // known ones have 4 levels

void refuse_other_heads(const ConfigReader& in, const FamilyRule& family) {
  constexpr const char* kKey = "architectures";
  if (!in.has(kKey) || !in.at(kKey).is_array() || in.at(kKey).empty()) return;
  const std::string name = in.architecture();
  std::vector<std::string> known = {std::string(family.architecture), scoring_architecture(family)};
  for (const std::string_view other : family.also_read)
    if (!other.empty()) known.emplace_back(other);
  if (std::find(known.begin(), known.end(), name) == known.end())
    in.fail(formatted("architecture '{}' is not supported; supported for this model_type: {}", name,
                      join(known, ", ")));
}

// Keeps every sum of bytes in 63 bits: each number may be within its bounds and their product beyond all
// sense.
void require_countable(const ConfigReader& in, const ModelSpec& spec) {
  constexpr double kMost = 0x1p50;
  const auto real = [](int64_t number) { return static_cast<double>(number); };
  const double heads = real(2 * spec.heads + 2 * spec.kv_heads) * real(spec.head_dim);
  const double layer = real(spec.hidden) * (heads + 3 * real(spec.mlp_width));
  const double parameters = real(spec.layers) * layer + 2 * real(spec.hidden) * real(spec.vocab);
  if (parameters > kMost)
    in.fail(
        "the model would have more than 10^15 parameters; check 'hidden_size', 'num_hidden_layers' and 'vocab_size'");
}

// The head that scores sequences, where the checkpoint has one, and what it reads.
void read_scores(const ConfigReader& in, const FamilyRule& family, ModelSpec& spec) {
  constexpr int64_t kMostLabels = int64_t{1} << 16;
  if (in.architecture() == scoring_architecture(family)) {
    spec.scores_sequences = true;
    spec.architecture = in.architecture();
  }
  if (in.has("id2label") && in.at("id2label").is_object())
    spec.labels = static_cast<int64_t>(in.at("id2label").size());
  spec.value_dropout = in.number("summary_dropout_prob", spec.value_dropout, 0.0, 0.99);
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

// nn.Embedding(padding_idx=config.pad_token_id); one below 0 counts from the end. T5 gives its embedding
// none.
std::optional<int64_t> padding_row(const ConfigReader& in, const ModelSpec& spec) {
  if (spec.encoder_decoder) return std::nullopt;
  if (spec.encoder) return spec.pad_token;
  if (!in.names("pad_token_id")) return spec.padding_row;  // that of the configuration's class
  if (!in.has("pad_token_id") || !in.at("pad_token_id").is_number_integer()) return std::nullopt;
  const auto token = in.at("pad_token_id").get<int64_t>();
  const int64_t row = token < 0 ? token + spec.vocab : token;
  return row >= 0 && row < spec.vocab ? std::optional(row) : std::nullopt;
}

}  // namespace

namespace {

// `family`: with the names of the classes that the checkpoint may be of.
ModelSpec parse_spec(const ConfigReader& in, const FamilyRule& family, ModelSpec spec) {
  refuse_other_heads(in, family);
  spec.family = family.model_type;
  spec.architecture = family.architecture;
  family.parse(in, spec);
  read_scores(in, family, spec);
  spec.padding_row = padding_row(in, spec);
  require_countable(in, spec);
  return spec;
}

ModelSpec parse_wrapped(const ConfigReader& outer, const WrapperRule& wrapper) {
  const Json text = text_config(outer, wrapper);
  const ConfigReader in(text, outer.where() + ": text_config");
  FamilyRule family = family_of(in);
  family.architecture = wrapper.architecture;
  family.scoring_name = {};
  family.also_read = {};
  ModelSpec spec;
  spec.wrapper = wrapper.model_type;
  spec.body = kTextModule;
  return parse_spec(in, family, std::move(spec));
}

}  // namespace

ModelSpec parse_model_spec(const Json& config, const std::string& where) {
  const ConfigReader in(config, where);
  if (!config.is_object()) in.fail("is not a JSON object");
  if (const WrapperRule* wrapper = find_wrapper(in.text("model_type", "")))
    return parse_wrapped(in, *wrapper);
  return parse_spec(in, family_of(in), {});
}

namespace {

Json parse_shallow(const std::string& text, const std::string& where) {
  // Depth is bounded before values are built.
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest)
      throw DamagedError(formatted("{}: is nested deeper than {} levels", where, kDeepest));
    return true;
  };
  try {
    return Json::parse(text, shallow);
  } catch (const Json::exception& error) {
    const std::string reason = error.what();  // "[json.exception...] parse error at ..."
    throw DamagedError(formatted("{}: is not valid JSON: {}", where,
                                 reason.substr(std::min(reason.size(), reason.find("] ") + 2))));
  }
}

// Says what is at the place that was named as a model folder, and what to do with it.
std::string no_model_here(const std::filesystem::path& config_file) {
  const std::filesystem::path folder = config_file.parent_path();
  const std::string name = folder.string();
  std::error_code unknown;
  if (std::filesystem::is_regular_file(folder, unknown))
    return name + ": is a file; a model is a folder with a config.json";
  if (!folder.empty() && !std::filesystem::exists(folder, unknown))
    return name + ": there is no such folder; a model is a folder with a config.json";
  if (std::filesystem::exists(folder / "adapter_config.json", unknown))
    return formatted(
        "{}: holds an adapter, and no model of its own. To train on from it, make it a model:\n"
        "  plimsoll merge {} --out {}",
        name, quoted(name), quoted(name + "-merged"));
  if (access(config_file.c_str(), R_OK) != 0 && errno != ENOENT && errno != ENOTDIR)
    return formatted("{}: cannot be read: {}", config_file.string(), std::generic_category().message(errno));
  return config_file.string() + ": cannot be read; a model folder needs a config.json";
}

}  // namespace

Json read_model_json(const std::filesystem::path& config_file) {
  std::error_code unknown;
  const auto type = std::filesystem::status(config_file, unknown).type();
  if (type == std::filesystem::file_type::not_found || type == std::filesystem::file_type::none)
    throw UsageError(no_model_here(config_file));
  return parse_shallow(read_regular(config_file, kLargestConfig), config_file.string());
}

ModelSpec read_model_spec(const std::filesystem::path& config_file) {
  return parse_model_spec(read_model_json(config_file), config_file.string());
}

std::vector<int64_t> ModelSpec::stacks() const {
  if (!encoder_decoder) return {layers};
  return {encoder_decoder->encoder_layers, encoder_decoder->decoder_layers};
}

ModelSpec ModelSpec::with_stacks(const std::vector<int64_t>& depths) const {
  check_internal(depths.size() == stacks().size(), "with_stacks: another number of stacks");
  ModelSpec result = *this;
  result.layers = std::accumulate(depths.begin(), depths.end(), int64_t{0});
  result.windows.resize(static_cast<size_t>(result.layers));
  // A few layers have tables for all ropes of the many: the last one takes what none of them has, with the window of
  // such a layer. Further layers than the model has are rotated by `rope`.
  if (!rope_of_layer.empty()) result.rope_of_layer.resize(static_cast<size_t>(result.layers), 0);
  for (size_t layer = 0; layer < rope_of_layer.size(); ++layer) {
    if (std::ranges::count(result.rope_of_layer, rope_of_layer[layer]) > 0) continue;
    result.rope_of_layer.back() = rope_of_layer[layer];
    result.windows.back() = windows[layer];
    break;
  }
  if (result.delta_net) {
    const auto& all = delta_net->attends;
    auto& attends = result.delta_net->attends;
    attends.clear();
    for (size_t i = 0; i < static_cast<size_t>(result.layers); ++i) attends.push_back(all[i % all.size()]);
    // A few layers have both kinds, where the many have.
    for (const bool kind : {false, true})
      if (!attends.empty() && std::ranges::count(all, kind) > 0 && std::ranges::count(attends, kind) == 0)
        attends.back() = kind;
  }
  if (result.encoder_decoder) {
    result.encoder_decoder->encoder_layers = depths.front();
    result.encoder_decoder->decoder_layers = depths.back();
  }
  return result;
}

std::optional<int64_t> ModelSpec::longest_text() const {
  if (encoder) return max_positions;
  if (rope.type == RopeType::dynamic || rope.type == RopeType::none) return std::nullopt;
  return max_positions;
}

std::string ModelSpec::describe() const {
  return formatted("{}, {}{} of width {}", architecture.substr(0, architecture.find("For")), layers,
                   layers == 1 ? " layer" : " layers", hidden);
}

}  // namespace plimsoll
