#include "models/shapes.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "models/config_reader.h"
#include "models/spec.h"

namespace plimsoll {
namespace {

using Json = nlohmann::json;

std::string without_owner(std::string_view name) { return std::string(name.substr(name.find('/') + 1)); }

// Every name in small letters, with its owner and without.
const std::map<std::string, NamedShape>& shapes_by_name() {
  static const std::map<std::string, NamedShape> kByName = [] {
    std::map<std::string, NamedShape> by_name;
    for (const ModelShape& shape : model_shapes()) {
      std::vector<std::string> names = shape.same_shape;
      names.insert(names.begin(), shape.name);
      for (const std::string& name : names) {
        by_name.emplace(in_small_letters(name), NamedShape{name, &shape});
        by_name.emplace(in_small_letters(without_owner(name)), NamedShape{name, &shape});
      }
    }
    return by_name;
  }();
  return kByName;
}

ModelShape shape_of(const Json& row) {
  return {row.at("name"), row.at("same_shape"), row.at("parameters"), row.at("config").dump(),
          row.at("source")};
}

constexpr const char* kPositions = "max_position_embeddings";

// The keys in which models of one shape may differ.
bool is_of_one_name(std::string_view key) {
  return key == kPositions || key == "rms_norm_eps" || key == "rope_theta";
}

struct Ending {
  std::string_view text, format;  // no format: the ending names the bits alone
};
// Longer ones first.
constexpr std::array kEndings = {Ending{"-quantized.w8a16", "compressed-tensors"},
                                 Ending{"-quantized.w4a16", "compressed-tensors"},
                                 Ending{"-quantized.w8a8", "compressed-tensors"},
                                 Ending{"-unsloth-bnb-4bit", "bitsandbytes"},
                                 Ending{"-bnb-4bit", "bitsandbytes"},
                                 Ending{"-bnb-8bit", "bitsandbytes"},
                                 Ending{"-bnb", "bitsandbytes"},
                                 Ending{"-gptq", "GPTQ"},
                                 Ending{"-awq", "AWQ"},
                                 Ending{"-i1-gguf", "GGUF"},
                                 Ending{"-gguf", "GGUF"},
                                 Ending{"-mlx", "MLX"},
                                 Ending{"-fp8-dynamic", "FP8"},
                                 Ending{"-fp8", "FP8"},
                                 Ending{"-3bit", ""},
                                 Ending{"-4bit", ""},
                                 Ending{"-6bit", ""},
                                 Ending{"-8bit", ""},
                                 Ending{"-int4", ""},
                                 Ending{"-int8", ""}};

// "q4_k_m", "q8_0", "iq3_xs": a type of GGUF, in small letters.
bool is_gguf_type(std::string_view word) {
  const size_t digit = word.starts_with("iq") ? 2 : 1;
  return (word.starts_with("q") || digit == 2) && word.size() > digit && word[digit] >= '1' &&
         word[digit] <= '8' && word.find_first_not_of("0123456789_klmsx", digit) == std::string_view::npos;
}

// The ending by which a name in small letters says that its weights are quantised; an empty text: it has none, or
// nothing stands before it.
Ending ending_of(std::string_view small) {
  for (const Ending& ending : kEndings)
    if (small.size() > ending.text.size() && small.ends_with(ending.text)) return ending;
  const size_t at = small.find_last_of("-.");
  if (at != std::string_view::npos && at > 0 && is_gguf_type(small.substr(at + 1)))
    return {small.substr(at), "GGUF"};
  return {};
}

size_t alike_at_start(std::string_view a, std::string_view b) {
  const size_t shorter = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(shorter), b.begin()).first -
      a.begin());
}

}  // namespace

Json ModelShape::config_json() const { return Json::parse(config); }

Json NamedShape::config_json() const {
  Json config = shape->config_json();
  // Encoders, whose positions are weights, are alike in older spellings alone, which stand for the shape's own name.
  if (is_alike() && config.contains(kPositions)) config[kPositions] = kMostPositions;
  return config;
}

const std::vector<ModelShape>& model_shapes() {
  static const std::vector<ModelShape> kShapes = [] {
    std::vector<ModelShape> shapes;
    for (const std::string& line : split(kModelShapes, '\n'))
      if (!line.empty()) shapes.push_back(shape_of(Json::parse(line)));
    return shapes;
  }();
  return kShapes;
}

std::optional<NamedShape> find_shape(std::string_view name) {
  const auto& by_name = shapes_by_name();
  const auto found = by_name.find(in_small_letters(name));
  if (found == by_name.end()) return std::nullopt;
  return found->second;
}

std::vector<std::string> nearest_shapes(std::string_view name, size_t most) {
  struct Near {
    int distance = 0;
    size_t alike = 0;
    std::string name;
  };
  const std::string wanted = in_small_letters(without_owner(name));
  const int limit = std::max(3, static_cast<int>(wanted.size() / 2));
  std::vector<Near> near;
  for (const auto& [small, named] : shapes_by_name()) {
    if (small.find('/') != std::string::npos) continue;
    const int distance = edit_distance(wanted, small, limit);
    if (distance < limit) near.push_back({distance, alike_at_start(wanted, small), named.name});
  }
  std::stable_sort(near.begin(), near.end(), [](const Near& a, const Near& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.alike > b.alike;
  });
  std::vector<std::string> names;
  for (const Near& one : near)
    if (names.size() < most) names.push_back(one.name);
  return names;
}

std::optional<QuantisedName> quantised_name(std::string_view name) {
  const std::string bare = without_owner(name), small = in_small_letters(bare);
  std::string_view left = small, format;
  for (Ending ending = ending_of(left); !ending.text.empty(); ending = ending_of(left)) {
    if (format.empty()) format = ending.format;
    left.remove_suffix(ending.text.size());
  }
  if (left.size() == small.size()) return std::nullopt;
  if (format.empty()) format = in_small_letters(name).starts_with("mlx-community/") ? "MLX" : "fewer bits";
  return QuantisedName{bare.substr(0, left.size()), std::string(format)};
}

std::optional<NamedShape> QuantisedName::base_shape() const {
  std::string with_owner = base;
  if (const size_t at = base.find('_'); at != std::string::npos) with_owner[at] = '/';
  const std::string own = without_owner(with_owner);
  for (const std::string& spelling : {base, with_owner, own, "Meta-" + own, own + "-hf"})
    if (auto found = find_shape(spelling)) return found;
  return std::nullopt;
}

std::string why_not_trained(const ModelShape& shape) try {
  parse_model_spec(shape.config_json(), shape.name);
  return "";
} catch (const UsageError& error) {
  const std::string reason = error.what(), place = shape.name + ": ";
  return reason.starts_with(place) ? reason.substr(place.size()) : reason;
}

std::vector<ConfigDifference> differences(const Json& config, const NamedShape& known) {
  std::vector<ConfigDifference> differing;
  const Json of_catalogue = known.shape->config_json();
  // The catalogue has the text model alone.
  const auto text = config.find("text_config");
  const Json& own = text != config.end() && text->is_object() ? *text : config;
  for (const auto& [key, value] : of_catalogue.items()) {
    // The type of the weights on disk is no part of the shape.
    if (key == "torch_dtype" || !own.contains(key) || own.at(key) == value) continue;
    if (known.is_alike() && is_of_one_name(key)) continue;
    differing.push_back({key, own.at(key).dump(), value.dump()});
  }
  return differing;
}

std::string difference_words(const std::vector<ConfigDifference>& differing) {
  std::vector<std::string> words;
  for (const ConfigDifference& one : differing)
    words.push_back(formatted("{} {}, the catalogue {}", one.key, one.config, one.catalogue));
  return words.empty() ? "" : "config.json says " + join(words, "; ");
}

}  // namespace plimsoll
