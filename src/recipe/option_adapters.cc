// Keys of `method` that give some modules other adapters than the rest: lists, and maps of patterns.
#include <algorithm>

#include "recipe/option_types.h"

namespace plimsoll::option_types {
namespace {

// A map of patterns to what `read` makes of their values, in the order of the text.
template <class Field, class Read>
Option patterns(const char* key, Field field, const char* values, const char* meaning, Read read) {
  using Value = typename decltype(read(Node{}))::value_type;
  using Pairs = std::vector<std::pair<std::string, Value>>;
  return make(
      key, field, values, meaning,
      [read](const Node& node, Folder) -> std::optional<Pairs> {
        Pairs pairs;
        if (node.kind == Node::Kind::null) return pairs;
        if (node.kind != Node::Kind::map) return std::nullopt;
        for (const Node& item : node.items) {
          const auto value = read(item);
          if (!value || item.key.empty()) return std::nullopt;
          pairs.emplace_back(item.key, *value);
        }
        return pairs;
      },
      [](const Pairs& pairs) {
        Json map = Json::object();
        for (const auto& [pattern, value] : pairs) map[pattern] = value;
        return map;
      });
}

// One or a list, each once. Whether they are regular expressions is seen where names are matched.
std::optional<std::vector<std::string>> read_expressions(const Node& node) {
  std::vector<std::string> expressions;
  const std::vector<Node> single = {node};
  for (const Node& item : node.kind == Node::Kind::list ? node.items : single) {
    const bool again = std::find(expressions.begin(), expressions.end(), item.text) != expressions.end();
    if (item.kind != Node::Kind::scalar || item.text.empty() || again) return std::nullopt;
    expressions.push_back(item.text);
  }
  return expressions;
}

}  // namespace

Option method_rank_pattern() {
  return patterns(
      "method.rank_pattern", [](auto& recipe) -> auto& { return recipe.method.rank_pattern; },
      "a map such as {q_proj: 32, 'layers\\.0\\..*': 8} to whole numbers from 1 to 8,192",
      "LoRA: ranks that differ, by regular expressions that match ends of module names; the first match "
      "counts",
      [](const Node& node) {
        return read_integer(node, {1, 8192});
      });
}

Option method_alpha_pattern() {
  return patterns(
      "method.alpha_pattern", [](auto& recipe) -> auto& { return recipe.method.alpha_pattern; },
      "a map such as {q_proj: 64} to numbers from 0 to 1e6",
      "LoRA: alphas that differ, by the same kind of patterns",
      [](const Node& node) {
        return read_number(node, {0, 1e6});
      });
}

Option method_layers() {
  return make(
      "method.layers", [](auto& recipe) -> auto& { return recipe.method.layers; },
      "all, a number or a list of numbers such as [0, 1]",
      "LoRA: indices of the layers that get adapters, from 0",
      [](const Node& node, Folder) -> std::optional<std::vector<int64_t>> {
        constexpr IntegerRange kLayer = {0, 100'000};
        std::vector<int64_t> layers;
        if (node.is_word("all") || node.kind == Node::Kind::null) return layers;
        if (node.kind == Node::Kind::list && node.items.empty()) return std::nullopt;
        const std::vector<Node> single = {node};
        for (const Node& item : node.kind == Node::Kind::list ? node.items : single) {
          const auto layer = read_integer(item, kLayer);
          if (!layer) return std::nullopt;
          layers.push_back(*layer);
        }
        return layers;
      },
      [](const std::vector<int64_t>& layers) { return layers.empty() ? Json("all") : Json(layers); });
}

Option method_layers_pattern() {
  return make(
      "method.layers_pattern", [](auto& recipe) -> auto& { return recipe.method.layers_pattern; },
      "null or a list of names such as [layers]",
      "LoRA: the part of module names before a layer's index; null: the first number in a name is the index",
      [](const Node& node, Folder) {
        return node.kind == Node::Kind::null ? std::vector<std::string>() : read_names(node);
      },
      [](const std::vector<std::string>& names) { return names.empty() ? Json(nullptr) : Json(names); });
}

Option method_modules_to_save() {
  return make(
      "method.modules_to_save", [](auto& recipe) -> auto& { return recipe.method.modules_to_save; },
      "null or a list of names such as [embed_tokens, lm_head]",
      "LoRA: modules that are trained in full and saved with the adapter, by ends of their names",
      [](const Node& node, Folder) {
        return node.kind == Node::Kind::null ? std::vector<std::string>() : read_names(node);
      },
      [](const std::vector<std::string>& names) { return names.empty() ? Json(nullptr) : Json(names); });
}

Option method_bits() {
  return make(
      "method.bits", [](auto& recipe) -> auto& { return recipe.method.bits; }, "4 or 8",
      "QLoRA: bits of the base's weights: 4 (NF4) or 8 (int8), each as bitsandbytes stores them",
      [](const Node& node, Folder) -> std::optional<int64_t> {
        const auto bits = read_integer(node, {4, 8});
        return bits == 4 || bits == 8 ? bits : std::nullopt;
      },
      [](int64_t bits) { return Json(bits); });
}

Option method_unquantised() {
  using Names = std::optional<std::vector<std::string>>;
  return make(
      "method.unquantised", [](auto& recipe) -> auto& { return recipe.method.unquantised; },
      "auto, none, or a list of names such as [down_proj, layers.0.self_attn.q_proj]",
      "QLoRA: modules that stay in 16 or 32 bits, by ends of their names; auto: those that a "
      "quantised folder keeps so, and T5's wo, as in transformers",
      [](const Node& node, Folder) -> std::optional<Names> {
        if (node.is_word("auto")) return Names();
        if (node.is_word("none")) return Names(std::in_place);
        const auto names = read_names(node);
        if (!names) return std::nullopt;
        return Names(*names);
      },
      [](const Names& names) {
        if (!names) return Json("auto");
        return names->empty() ? Json("none") : Json(*names);
      });
}

Option method_freeze() {
  return make(
      "method.freeze", [](auto& recipe) -> auto& { return recipe.method.freeze; },
      "null or a list of names such as [encoder, 'layers\\.[0-7]']",
      "full: frozen weights, by regular expressions that match parts of their names",
      [](const Node& node, Folder) {
        return node.kind == Node::Kind::null ? std::vector<std::string>() : read_expressions(node);
      },
      [](const std::vector<std::string>& names) { return names.empty() ? Json(nullptr) : Json(names); });
}

Option method_init() {
  return make(
      "method.init", [](auto& recipe) -> auto& { return recipe.method.init; },
      "lora, pissa, pissa_niter_N with N iterations from 1 to 1,000, or olora",
      "initialisation of adapters: lora: A random, B zero; pissa, olora: from the weights",
      [](const Node& node, Folder) -> std::optional<std::string> {
        constexpr std::string_view kIterations = "pissa_niter_";
        for (const char* word : {"lora", "pissa", "olora"})
          if (node.is_word(word)) return node.text;
        if (node.kind != Node::Kind::scalar || !node.text.starts_with(kIterations)) return std::nullopt;
        Node number = node;
        number.quoted = false;
        number.text.erase(0, kIterations.size());
        return read_integer(number, {1, 1000}) ? std::optional(node.text) : std::nullopt;
      },
      [](const std::string& init) { return Json(init); });
}

}  // namespace plimsoll::option_types
