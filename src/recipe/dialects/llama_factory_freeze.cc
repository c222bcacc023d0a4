// LLaMA-Factory's finetuning_type: freeze (0.9.5: model/adapter.py, _setup_freeze_tuning): the last layers
// train, or the first, whole or some of their modules, and modules outside of layers by name. A weight trains
// where a chosen text is anywhere in its name, so "norm" is every layer's norms as well.
#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "models/parameter_names.h"
#include "recipe/hub.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

constexpr std::string_view kAll = "all";

struct Modules {
  std::set<std::string> of_layers, outside;
};

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Modules that may be named: the part behind the first layer's number, and for weights outside of layers the
// last part but one.
Modules modules_of(const ModelSpec& spec) {
  Modules modules;
  for (const std::string& name : parameter_names(spec)) {
    const std::vector<std::string> parts = split(name, '.');
    const auto number = std::find_if(parts.begin(), parts.end(), is_number);
    if (number == parts.end() && parts.size() > 1)
      modules.outside.insert(parts[parts.size() - 2]);
    else if (number != parts.end() && std::next(number) != parts.end())
      modules.of_layers.insert(*std::next(number));
  }
  return modules;
}

std::string refusal(const std::string& name, const std::set<std::string>& known) {
  const std::vector<std::string> names(known.begin(), known.end());
  return formatted("the model has no module '{}' there; it has {}", excerpt(name), join(names, ", "));
}

// The model's facts; nothing, with a note, where its files are absent on this machine.
std::optional<ModelSpec> spec_of(Layer& layer, const Said& method) {
  const Node* given = layer.given("model");
  const std::string none = "counts the layers of the model: ";
  if (given == nullptr && layer.before().model.empty()) {
    layer.refuse_until_later(method, none + "say which one", "model");
    return std::nullopt;
  }
  std::filesystem::path folder = layer.before().model;
  if (given != nullptr) {
    const Located located = locate_on_hub("model", *given, layer.source().folder);
    folder = layer.source().folder / located.node.text;
    if (!located.missing.empty()) {
      layer.refuse_until_later(method, none + located.missing.front(), "model");
      return std::nullopt;
    }
  }
  try {
    ModelSpec spec = read_model_spec(folder / "config.json");
    if (!spec.encoder && !spec.encoder_decoder) return spec;
    layer.refuse_until_later(method, "is for decoders; method.freeze leaves parts of any model as they are",
                             "model");
  } catch (const UsageError& error) {
    layer.refuse_until_later(method, none + error.what(), "model");
  }
  return std::nullopt;
}

// The last `count` layers, or with a negative count the first ones.
std::vector<int64_t> trained_layers(int64_t count, int64_t layers) {
  const int64_t first = count > 0 ? std::max<int64_t>(0, layers - count) : 0;
  const int64_t behind = count > 0 ? layers : std::min(-count, layers);
  std::vector<int64_t> numbers;
  for (int64_t i = first; i < behind; ++i) numbers.push_back(i);
  return numbers;
}

std::vector<std::string> names_of(const Said* said, std::vector<std::string> otherwise) {
  if (said == nullptr) return otherwise;
  std::vector<std::string> names;
  for (const Node& name : said->value.items) names.push_back(name.text);
  return names;
}

}  // namespace

void combine_llama_factory_freeze(Layer& layer) {
  const Said* method = layer.part("@method");
  const Said* count = layer.part("@freeze_layers");
  const Said* modules = layer.part("@freeze_modules");
  const Said* extra = layer.part("@freeze_extra");
  if (!is_word(method, "freeze")) {
    if (!layer.says({"@freeze_layers", "@freeze_modules", "@freeze_extra"})) return;
    for (const Said* said : present({count, modules, extra}))
      layer.ignore(*said, "read with finetuning_type: freeze only", true);
    return;
  }
  const bool says_model = layer.given("model") != nullptr;
  if (!says_model && !layer.says({"@method", "@freeze_layers", "@freeze_modules", "@freeze_extra"})) return;
  const std::optional<ModelSpec> spec = spec_of(layer, *method);
  if (!spec) return;
  const Modules known = modules_of(*spec);
  const int64_t layers = count == nullptr ? 2 : read_foreign_whole(count->value).value_or(0);
  std::vector<std::string> trained;
  for (const std::string& name : names_of(modules, {std::string(kAll)})) {
    if (name != kAll && !known.of_layers.contains(name))
      return layer.refuse_until_later(*modules, refusal(name, known.of_layers), "model");
    for (const int64_t i : trained_layers(layers, spec->layers))
      trained.push_back(formatted("\\.{}\\.{}", i, name == kAll ? "" : name));
  }
  for (const std::string& name : names_of(extra, {})) {
    if (!known.outside.contains(name))
      return layer.refuse_until_later(*extra, refusal(name, known.outside), "model");
    trained.push_back(name);
  }
  if (trained.empty()) return layer.refuse(*count, "nothing is left to train");
  // Added to the model once the rest is frozen: the head that scores.
  for (const char* head : {"^v_head\\.", "^score\\."}) trained.emplace_back(head);
  const auto from = present({method, count, modules, extra});
  layer.emit("method.freeze", list_at(method->value, {formatted("^(?!.*(?:{})).*", join(trained, "|"))}),
             from);
}

}  // namespace plimsoll
