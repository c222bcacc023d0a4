// Shapes of models by name, compiled into the program: enough to plan a model without its files. A config.json of the
// user's own decides instead.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

// The rows of model-shapes.jsonl, one JSON object a line.
extern const char* const kModelShapes;

struct ModelShape {
  std::string name;                     // "Qwen/Qwen2.5-7B"
  std::vector<std::string> same_shape;  // other models of these sizes, by name
  int64_t parameters = 0;
  std::string config;  // JSON: numbers and types alone
  std::string source;  // of the numbers

  [[nodiscard]] nlohmann::json config_json() const;
};
const std::vector<ModelShape>& model_shapes();

// A model of the catalogue: its own name, as its owner writes it, and the shape that it has. A name among `same_shape`
// shares the sizes; its positions, the base of its RoPE and the epsilon of its norms may be others, which the catalogue
// lacks.
struct NamedShape {
  std::string name;
  const ModelShape* shape = nullptr;

  [[nodiscard]] bool is_alike() const { return name != shape->name; }  // one of `same_shape`
  // The shape's config.json; of a name that is alike, without a bound of positions.
  [[nodiscard]] nlohmann::json config_json() const;
};
// By a name in any case, with or without the owner.
std::optional<NamedShape> find_shape(std::string_view name);
// The names of the catalogue that are most like a name that it lacks, best first, at most `most`.
std::vector<std::string> nearest_shapes(std::string_view name, size_t most = 4);

// Splits the name of a repository with quantised weights ("x/Qwen2.5-7B-Q4_K_M-GGUF").
struct QuantisedName {
  std::string base;    // "Qwen2.5-7B"
  std::string format;  // "GGUF"

  // The base in the catalogue, under spellings that such repositories use: "Llama-3-8B" for "Meta-Llama-3-8B",
  // "Llama-2-7B" for "Llama-2-7b-hf", "microsoft_phi-4" for "microsoft/phi-4".
  [[nodiscard]] std::optional<NamedShape> base_shape() const;
};
std::optional<QuantisedName> quantised_name(std::string_view name);

// The reason why this version does not train the model, in the words of its families; empty: it trains it.
std::string why_not_trained(const ModelShape& shape);

// A key that two config.json state otherwise, with what they say.
struct ConfigDifference {
  std::string key, config, catalogue;
};
// Compares keys that both state; for a name that is alike, those that the names share.
std::vector<ConfigDifference> differences(const nlohmann::json& config, const NamedShape& known);
// "config.json says vocab_size 151936, the catalogue 152064".
std::string difference_words(const std::vector<ConfigDifference>& differing);

}  // namespace plimsoll
