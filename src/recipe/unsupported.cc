#include "recipe/unsupported.h"

#include <algorithm>

#include "base/format.h"

namespace plimsoll {
namespace {

bool mentions(std::string_view missing, std::string_view text) {
  return text == missing || (text.starts_with(missing) && text[missing.size()] == ':');
}

const Unsupported* find(std::string_view key) {
  const auto at =
      std::find_if(unsupported().begin(), unsupported().end(), [&](const auto& u) { return u.key == key; });
  return at == unsupported().end() ? nullptr : &*at;
}

std::string join_views(const std::vector<std::string_view>& parts) {
  std::string text;
  for (const std::string_view part : parts) text += (text.empty() ? "" : ", ") + std::string(part);
  return text;
}

std::string not_yet(std::string_view key, std::string_view value) {
  return formatted("{}: '{}' is not supported yet", key, excerpt(value));
}

}  // namespace

const std::vector<Unsupported>& unsupported() {
  static const std::vector<Unsupported> kList = {
      {"data.loader_threads", {}, {"auto", "1"}},
      {"data.pin", {}, {"auto"}},
      // Their sums are f32 in every tool's mixed precision.
      {"precision.gradients", {"fp16"}, {}},
      {"precision.states", {"fp16"}, {}},
      {"eval.metrics", {}, {"[loss]"}},
      {"save.format", {}, {"auto"}},
  };
  return kList;
}

std::string support_note(std::string_view key) {
  const Unsupported* entry = find(key);
  if (entry == nullptr) return "";
  if (!entry->only.empty()) return "so far only: " + join_views(entry->only);
  return "not yet: " + join_views(entry->missing);
}

std::optional<std::string> refuse_node(std::string_view key, const Node& node) {
  const Unsupported* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  std::vector<std::string_view> given;
  if (node.kind == Node::Kind::scalar) given.emplace_back(node.text);
  for (const Node& item : node.items) given.emplace_back(node.kind == Node::Kind::map ? item.key : item.text);
  for (const std::string_view text : given)
    for (const std::string_view missing : entry->missing)
      if (mentions(missing, text)) return not_yet(key, text);
  return std::nullopt;
}

std::optional<std::string> refuse_value(std::string_view key, const Json& value) {
  const Unsupported* entry = find(key);
  if (entry == nullptr || entry->only.empty()) return std::nullopt;
  const std::string text = to_yaml(value);
  if (std::find(entry->only.begin(), entry->only.end(), text) != entry->only.end()) return std::nullopt;
  return formatted("{} (supported: {})", not_yet(key, text), join_views(entry->only));
}

}  // namespace plimsoll
