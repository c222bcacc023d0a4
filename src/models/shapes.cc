#include "models/shapes.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strings.h"
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

size_t alike_at_start(std::string_view a, std::string_view b) {
  const size_t shorter = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(shorter), b.begin()).first -
      a.begin());
}

}  // namespace

Json ModelShape::config_json() const { return Json::parse(config); }

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
  struct Ending {
    std::string_view text, format;
  };
  // Longer ones first: what is left is the base's name.
  static constexpr std::array kEndings = {Ending{"-unsloth-bnb-4bit", "bitsandbytes"},
                                          Ending{"-bnb-4bit", "bitsandbytes"},
                                          Ending{"-bnb-8bit", "bitsandbytes"},
                                          Ending{"-gptq-int4", "GPTQ"},
                                          Ending{"-gptq-int8", "GPTQ"},
                                          Ending{"-gptq", "GPTQ"},
                                          Ending{"-awq-int4", "AWQ"},
                                          Ending{"-awq", "AWQ"},
                                          Ending{"-gguf", "GGUF"},
                                          Ending{"-mlx-4bit", "MLX"},
                                          Ending{"-mlx", "MLX"},
                                          Ending{"-fp8", "FP8"}};
  const std::string bare = without_owner(name), small = in_small_letters(bare);
  for (const Ending& ending : kEndings)
    if (small.size() > ending.text.size() && small.ends_with(ending.text))
      return QuantisedName{bare.substr(0, bare.size() - ending.text.size()), std::string(ending.format)};
  return std::nullopt;
}

std::string why_not_trained(const ModelShape& shape) try {
  parse_model_spec(shape.config_json(), shape.name);
  return "";
} catch (const UsageError& error) {
  const std::string reason = error.what(), place = shape.name + ": ";
  return reason.starts_with(place) ? reason.substr(place.size()) : reason;
}

std::vector<ConfigDifference> differences(const Json& config, const ModelShape& shape) {
  std::vector<ConfigDifference> differing;
  const Json known = shape.config_json();
  for (const auto& [key, value] : known.items()) {
    // The type of the weights on disk is no part of the shape.
    if (key == "torch_dtype" || !config.contains(key) || config.at(key) == value) continue;
    differing.push_back({key, config.at(key).dump(), value.dump()});
  }
  return differing;
}

std::string difference_words(const std::vector<ConfigDifference>& differing) {
  std::vector<std::string> words;
  for (const ConfigDifference& one : differing)
    words.push_back(one.key + " " + one.config + ", the catalogue " + one.catalogue);
  return words.empty() ? "" : "config.json says " + join(words, "; ");
}

}  // namespace plimsoll
