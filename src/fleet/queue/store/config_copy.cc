#include "fleet/queue/store/config_copy.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/strings.h"
#include "files/json.h"

namespace plimsoll::queue {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostCopyBytes = 16 << 20;  // written: a few lines of aliases can stand for gigabytes
constexpr int kDeepest = 100;

bool is_json(const std::string& name) { return name.ends_with(".json"); }

[[noreturn]] void fail(const std::string& name, const std::string& key, const std::string& why) {
  throw UsageError(formatted("--yaml-set {}:{}: {}", name, key, why));
}

// Neither kind of file can hold anything but UTF-8; replaced by the sign for it, a key would be another one.
// YAML reads no key of more than 1,024 characters, escapes included.
void check_change(const ConfigChange& change) {
  constexpr size_t kLongestKey = 500;
  if (change.key.size() > kLongestKey || printable(change.key) != change.key)
    throw UsageError(
        formatted("--yaml-set {}: a key is text in UTF-8 without control characters, 500 bytes at most",
                  printable(formatted("{}:{}", change.file, change.key))));
  const bool control = std::any_of(change.value.begin(), change.value.end(), [](unsigned char c) {
    return std::iscntrl(c) != 0 && c != '\n' && c != '\t';
  });
  if (control)
    throw UsageError(formatted("--yaml-set {}: the value has control characters",
                               printable(formatted("{}:{}", change.file, change.key))));
  try {
    (void)ordered_json(change.value).dump();
  } catch (const ordered_json::type_error&) {
    throw UsageError(formatted("--yaml-set {}: the value has to be UTF-8",
                               printable(formatted("{}:{}", change.file, change.key))));
  }
}

// Writes YAML in blocks. Plain scalars stay plain, since readers tell numbers and words apart by that.
class Writer {
 public:
  std::string write(const YAML::Node& node) {
    value(node, 0, true);
    return std::move(text_);
  }

 private:
  void value(const YAML::Node& node, int depth, bool root) {
    if (depth > kDeepest || text_.size() > kMostCopyBytes)
      throw UsageError("--yaml-set: the file is too deep or too large with its aliases written out");
    const bool block = (node.IsMap() || node.IsSequence()) && node.size() > 0;
    const std::string tag = tag_of(node);
    if (!root && (!block || !tag.empty())) text_ += ' ';
    text_ += block && !tag.empty() ? tag.substr(0, tag.size() - 1) : tag;
    if (!block) {
      text_ += node.IsMap() ? "{}" : node.IsSequence() ? "[]" : scalar(node, !tag.empty());
      text_ += '\n';
      return;
    }
    if (!root || !tag.empty()) text_ += '\n';
    for (const auto& one : node) {
      text_.append(static_cast<size_t>(depth) * 2, ' ');
      if (node.IsSequence()) {
        text_ += '-';
        value(one, depth + 1, false);
        continue;
      }
      if (!one.first.IsScalar() && !one.first.IsNull())
        throw UsageError("--yaml-set: the file has a key that is no word");
      text_ += scalar(one.first, false) + ":";
      value(one.second, depth + 1, false);
    }
  }

  static std::string tag_of(const YAML::Node& node) {
    const std::string& tag = node.Tag();
    return tag.empty() || tag == "?" || tag == "!" ? "" : formatted("!<{}> ", tag);
  }

  static bool is_word(const std::string& text) {
    const bool is_null = text == "null" || text == "Null" || text == "NULL";
    return !text.empty() && !is_null && std::all_of(text.begin(), text.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '/';
    });
  }

  // A text of several lines was folded when it was read, and a carriage return may end one: in quotes it is what
  // it is.
  static std::string scalar(const YAML::Node& node, bool tagged) {
    if (node.IsNull()) return tagged ? "" : "null";
    const std::string& text = node.Scalar();
    const bool was_plain =
        node.Tag() == "?" && !text.empty() && text.find_first_of("\n\r") == std::string::npos;
    const bool plain = was_plain || (node.Tag().empty() && is_word(text));  // the latter: an added key
    return plain && !tagged ? text
                            : ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }

  std::string text_;
};

// Takes a document as it comes, and keeps nothing.
class NoEvents : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
  }
  void OnMapEnd() override {}
};

// The library's way to load all documents never ends for some files that are no YAML: a list that is not
// closed becomes one document after the other.
YAML::Node only_document(const std::string& text, const std::string& name) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  NoEvents events;
  if (!parser.HandleNextDocument(events)) return YAML::Node();
  if (parser.HandleNextDocument(events))
    throw UsageError(printable(name) + ": holds more than one YAML document");
  return YAML::Load(text);
}

std::string shown(const YAML::Node& node) {
  if (!node.IsDefined()) return "nothing";
  if (node.IsScalar()) return node.Scalar();
  return node.IsNull() ? "null" : node.IsMap() ? "a map" : "a list";
}

// The place of `part` in a list. Throws UsageError where it has none.
size_t place_in(size_t size, const std::string& part, const ConfigChange& change) {
  if (part.empty() || part.size() > 9 || part.find_first_not_of("0123456789") != std::string::npos)
    fail(change.file, change.key, formatted("'{}' is no place in a list", part));
  const size_t place = std::stoul(part);
  if (place >= size) fail(change.file, change.key, formatted("the list there has {} values", size));
  return place;
}

YAML::Node read_yaml_value(const ConfigChange& change) {
  try {
    return YAML::Load(change.value);
  } catch (const YAML::Exception& error) {
    fail(change.file, change.key, "the value is not valid YAML: " + error.msg);
  }
}

void change_yaml(YAML::Node node, const ConfigChange& change, std::vector<std::string>& told) {
  const std::vector<std::string> parts = split(change.key, '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    YAML::Node next;
    if (node.IsSequence()) {
      next.reset(node[place_in(node.size(), parts[i], change)]);
    } else if (node.IsScalar()) {
      fail(change.file, change.key, formatted("there is '{}' where a map would have to be", node.Scalar()));
    } else if (const YAML::Node found = std::as_const(node)[parts[i]]; found.IsDefined()) {
      next.reset(found);
    } else {
      if (last) told.push_back(formatted("{}: added {}", change.key, change.value));
      if (last) return void(node[parts[i]] = read_yaml_value(change));
      node[parts[i]] = YAML::Node(YAML::NodeType::Map);
      next.reset(node[parts[i]]);
    }
    if (!last && next.IsNull()) next = YAML::Node(YAML::NodeType::Map);
    if (last) {
      told.push_back(formatted("{}: {} -> {}", change.key, shown(next), change.value));
      next = read_yaml_value(change);
    }
    node.reset(next);
  }
}

// Bounded in depth and keys: writing it again goes as deep, and each key is looked for among those before it.
ordered_json read_json(const std::string& text, const std::string& where) {
  try {
    return parse_ordered_json(text, where, {.max_depth = kDeepest});
  } catch (const DamagedError& error) {
    throw UsageError(error.what());
  }
}

void change_json(ordered_json& root, const ConfigChange& change, std::vector<std::string>& told) {
  ordered_json* node = &root;
  bool added = false;
  for (const std::string& part : split(change.key, '.')) {
    if (node->is_array()) {
      node = &(*node)[place_in(node->size(), part, change)];
    } else if (node->is_object() || node->is_null()) {
      added = !node->contains(part);
      node = &(*node)[part];
    } else {
      fail(change.file, change.key, formatted("there is {} where an object would have to be", node->dump()));
    }
  }
  told.push_back(formatted(
      "{}: {}{}", change.key,
      added ? "added "
            : (node->is_structured() ? (node->is_array() ? "a list" : "a map") : node->dump()) + " -> ",
      change.value));
  *node = ordered_json::accept(change.value)
              ? read_json(change.value, formatted("--yaml-set {}: the value",
                                                  printable(formatted("{}:{}", change.file, change.key))))
              : ordered_json(change.value);
}

}  // namespace

ConfigChange read_config_change(const std::string& text) {
  const size_t equals = text.find('=');
  const size_t colon = equals == std::string::npos ? equals : text.rfind(':', equals);
  if (colon == std::string::npos || colon == 0 || colon + 1 == equals)
    throw UsageError(formatted("--yaml-set: expected FILE:KEY=VALUE, found '{}'", text));
  return {text.substr(0, colon), text.substr(colon + 1, equals - colon - 1), text.substr(equals + 1)};
}

std::string changed_config(const std::string& text, const std::string& name,
                           const std::vector<ConfigChange>& changes, std::vector<std::string>& told) {
  for (const ConfigChange& change : changes) check_change(change);
  // The YAML library ends a text there in one place and continues it in another.
  if (text.find('\0') != std::string::npos)
    throw UsageError(printable(name) + ": holds the character NUL, which neither YAML nor JSON allows");
  if (is_json(name)) {
    ordered_json root = read_json(text, printable(name));
    if (!root.is_structured()) throw UsageError(printable(name) + ": is no JSON object");
    for (const ConfigChange& change : changes) change_json(root, change, told);
    return root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  }
  try {
    const YAML::Node document = only_document(text, name);
    YAML::Node root(YAML::NodeType::Map);
    // Read again with its aliases written out: a change is then of one place.
    if (!document.IsNull()) root = YAML::Load(Writer().write(document));
    if (root.IsScalar()) throw UsageError(printable(name) + ": is no YAML file of keys");
    for (const ConfigChange& change : changes) change_yaml(root, change, told);
    return Writer().write(root);
  } catch (const YAML::Exception& error) {
    throw UsageError(formatted("{}{}: not valid YAML: {}", printable(name),
                               error.mark.is_null() ? "" : ":" + std::to_string(error.mark.line + 1),
                               error.msg));
  }
}

}  // namespace plimsoll::queue
