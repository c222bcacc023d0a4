#include "recipe/translate/layer.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "recipe/option.h"
#include "recipe/translate/foreign_value.h"
#include "recipe/translate/read_file.h"

namespace plimsoll {

std::string as_text(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return "null";
    case Node::Kind::scalar:
      return node.quoted ? to_yaml(Json(excerpt(node.text))) : excerpt(node.text);
    default:
      break;
  }
  const bool is_map = node.kind == Node::Kind::map;
  std::vector<std::string> parts;
  for (const Node& item : node.items) parts.push_back((is_map ? item.key + ": " : "") + as_text(item));
  return (is_map ? "{" : "[") + join(parts, ", ") + (is_map ? "}" : "]");
}

const Node* find_node(const Node& map, std::string_view key) {
  if (map.kind != Node::Kind::map) return nullptr;
  for (const Node& item : map.items) {
    if (item.key == key) return &item;
    if (!item.key.empty() && key.starts_with(item.key) && key[item.key.size()] == '.')
      if (const Node* inner = find_node(item, key.substr(item.key.size() + 1))) return inner;
  }
  return nullptr;
}

Layer::Layer(int number, const Source& source, std::optional<Tool> tool, const Recipe& before, Parts& parts,
             Problems& problems, KeyReport& report)
    : number_(number),
      source_(source),
      tool_(tool),
      before_(before),
      parts_(parts),
      problems_(problems),
      report_(report) {}

void Layer::read(const Alias& row, const std::string& key, const Node& node) {
  Said said = {node, key, formatted("{}: {}", key, excerpt(as_text(node))), number_};
  ForeignValue value = read_foreign(row, key, node);
  switch (value.outcome) {
    case ForeignValue::Outcome::no_effect:
      return ignore(said, value.reason, row.reading == Reading::off || node.kind == Node::Kind::null);
    case ForeignValue::Outcome::refused:
      return refuse(said, value.reason);
    case ForeignValue::Outcome::mapped:
      break;
  }
  said.value = row.reading == Reading::path ? locate(value.node) : value.node;
  said.value.line = node.line;
  said.value.key_line = node.key_line;
  if (row.to.starts_with('@')) return say(std::string(row.to), std::move(said));
  said_.push_back(std::make_unique<Said>(std::move(said)));
  emit(row.to, said_.back()->value, {said_.back().get()});
}

void Layer::say(const std::string& name, Said said) {
  const auto before = parts_.find(name);
  if (before != parts_.end() && before->second.layer == number_) {
    const Said& other = before->second;
    if (as_text(other.value) != as_text(said.value))
      problems_.add(place(said.value),
                    formatted("'{}' and '{}' at {} contradict each other; keep one of them", said.as_written,
                              other.as_written, place(other.value)));
    return;
  }
  parts_.insert_or_assign(name, std::move(said));
}

const Said* Layer::part(std::string_view name) const {
  const auto at = parts_.find(name);
  return at == parts_.end() ? nullptr : &at->second;
}

bool Layer::says(std::initializer_list<std::string_view> names) const {
  return std::any_of(names.begin(), names.end(), [this](std::string_view name) {
    const Said* said = part(name);
    return said != nullptr && said->layer == number_;
  });
}

const Node* Layer::given(std::string_view key) const {
  if (const auto at = emitted_.find(key); at != emitted_.end()) return &at->second.node;
  return own_ == nullptr ? nullptr : find_node(*own_, key);
}

bool Layer::emits(std::string_view prefix) const {
  const auto at = emitted_.lower_bound(prefix);
  return at != emitted_.end() && at->first.starts_with(prefix);
}

MethodType Layer::method() const {
  const Node* node = given("method.type");
  if (node == nullptr) return before_.method.type;
  return node->text == "full"    ? MethodType::full
         : node->text == "qlora" ? MethodType::qlora
                                 : MethodType::lora;
}

bool Layer::same(std::string_view key, const Node& a, const Node& b) const {
  const Option* option = find_option(key);
  check_internal(option != nullptr,
                 "a key of another tool became one that does not exist: " + std::string(key));
  try {
    Recipe first;
    Recipe second;
    return option->set(first, a, source_.folder) && option->set(second, b, source_.folder) &&
           option->get(first) == option->get(second);
  } catch (const UsageError&) {
    return false;
  }
}

void Layer::emit(std::string_view key, Node value, const std::vector<const Said*>& from) {
  value.key = key;
  const auto [at, is_new] = emitted_.try_emplace(std::string(key), Emitted{value, from, false});
  if (is_new || same(key, at->second.node, value)) return;
  problems_.add(place(value), formatted("'{}' and '{}' at {} both say {}, and not the same; keep one of them",
                                        from.front()->as_written, at->second.from.front()->as_written,
                                        place(at->second.node), key));
}

void Layer::emit(std::string_view key, std::string_view text, const std::vector<const Said*>& from) {
  Node node = scalar_at(from.front()->value, text);
  if (text == "null") node.kind = Node::Kind::null;
  emit(key, node, from);
}

bool Layer::change(std::string_view key, const Said& from, const std::function<void(Node&)>& change) {
  const auto at = emitted_.find(key);
  if (at == emitted_.end()) return false;
  change(at->second.node);
  at->second.from.push_back(&from);
  return true;
}

void Layer::emit_default(std::string_view key, std::string_view text) {
  if (given(key) != nullptr || emits(std::string(key) + ".")) return;
  Node node = read_yaml(text);
  node.line = node.key_line = 0;  // it stands nowhere
  node.key = key;
  emitted_.emplace(std::string(key), Emitted{node, {}, true});
}

void Layer::ignore(const Said& said, const std::string& reason, bool is_off) {
  report_.no_effect.push_back({place(said.value), said.as_written, reason, is_off});
}

void Layer::withdraw(const Said& said) {
  std::erase_if(report_.no_effect,
                [&](const KeyReport::NoEffect& key) { return key.theirs == said.as_written && !key.is_off; });
}

void Layer::refuse(const Said& said, const std::string& message, const std::string& key) {
  problems_.add(place(said.value), formatted("{}: {}", said.key, message), key);
}

void Layer::refuse_until_later(const Said& said, const std::string& message, const std::string& key) {
  problems_.add(place(said.value), formatted("{}: {}", said.key, message), key, number_);
}

// Tools are started in a repository's root, their recipes lie in folders of it: "configs/zero3.json".
Node Layer::locate(const Node& path) const {
  constexpr size_t kMostAbove = 4;
  if (path.kind == Node::Kind::list) {
    Node list = path;
    for (Node& item : list.items) item = locate(item);
    return list;
  }
  std::error_code ignored;
  if (path.kind != Node::Kind::scalar || path.text.empty()) return path;
  if (std::filesystem::exists(source_.folder / path.text, ignored)) return path;
  std::vector<std::filesystem::path> folders = {std::filesystem::current_path(ignored)};
  const bool may_lie_above = source_.has_lines && path.text.find('/') != std::string::npos;
  for (std::filesystem::path above = source_.folder; may_lie_above && folders.size() <= kMostAbove;
       above = folders.back())
    folders.push_back(above.parent_path());
  for (const std::filesystem::path& folder : folders) {
    if (folder.empty() || !std::filesystem::exists(folder / path.text, ignored)) continue;
    Node found = path;
    found.text = (folder / path.text).string();
    return found;
  }
  return path;
}

Recipe Layer::with_emitted() const {
  Recipe recipe = before_;
  for (const std::string_view key : {"method.type", "method.bits", "optimizer.name", "task"}) {
    const Node* node = given(key);
    if (node != nullptr) find_option(key)->set(recipe, *node, source_.folder);
  }
  return recipe;
}

Node Layer::read_file(const Node& path_or_map) const {
  if (path_or_map.kind == Node::Kind::map) return path_or_map;
  const Node found = locate(path_or_map);
  return read_tree((source_.folder / found.text).string());
}

bool Layer::has_offload_target() const {
  const Node* device = given("device");
  const Node* gpu = given("memory.gpu");
  const Node* disk = given("memory.disk");
  const bool is_card = device == nullptr ? before_.is_of_card() || before_.device == DeviceChoice::emulated
                                         : device->is_word("card") || device->is_word("emulated") ||
                                               device->text.starts_with("cuda");
  const bool is_named = gpu != nullptr && gpu->kind == Node::Kind::scalar;
  const bool has_disk = disk != nullptr ? !is_off(*disk) : before_.memory.disk_bytes > 0;
  return is_card || is_named || has_disk;
}

void Layer::drop_what_means_nothing() {
  const Recipe recipe = with_emitted();
  for (auto at = emitted_.begin(); at != emitted_.end();) {
    const Option& option = *find_option(at->first);
    if (applies(option, recipe)) {
      ++at;
      continue;
    }
    for (const Said* said : at->second.from)
      ignore(*said, applies_to_optimizer(option, recipe) ? "has no effect with the method"
                                                         : "has no effect with the optimizer");
    at = emitted_.erase(at);
  }
}

void Layer::report(const std::string& key, const Emitted& emitted) {
  const std::string ours = formatted("{}: {}", key, as_text(emitted.node));
  if (emitted.is_default) {
    // Only where it is not ours.
    Recipe given;
    find_option(key)->set(given, emitted.node, source_.folder);
    if (find_option(key)->get(given) != find_option(key)->get(Recipe{})) report_.defaults.push_back(ours);
    return;
  }
  std::vector<std::string> theirs;
  for (const Said* said : emitted.from) theirs.push_back(said->as_written);
  report_.mapped.push_back({place(emitted.node), join(theirs, ", "), ours});
}

std::vector<Node> Layer::take() {
  std::vector<Node> nodes;
  for (const auto& [key, emitted] : emitted_) {
    const Node* own = own_ == nullptr ? nullptr : find_node(*own_, key);
    if (own == nullptr) {
      nodes.push_back(emitted.node);
    } else if (!emitted.is_default && !same(key, *own, emitted.node)) {
      problems_.add(place(emitted.node), formatted("'{}' says {}: {}, but {} says {}: {}; keep one of them",
                                                   emitted.from.front()->as_written, key,
                                                   as_text(emitted.node), place(*own), key, as_text(*own)));
      continue;
    }
    report(key, emitted);
  }
  // Our keys in the order of the manual, theirs in that of the file.
  std::stable_sort(report_.mapped.begin(), report_.mapped.end(), [](const auto& a, const auto& b) {
    return a.place.size() != b.place.size() ? a.place.size() < b.place.size() : a.place < b.place;
  });
  return nodes;
}

}  // namespace plimsoll
