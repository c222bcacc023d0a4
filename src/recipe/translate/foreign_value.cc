#include "recipe/translate/foreign_value.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/strings.h"
#include "recipe/values.h"

namespace plimsoll {
namespace {

using Outcome = ForeignValue::Outcome;

constexpr std::string_view kComponent = "_component_";

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

ForeignValue refused(std::string reason) { return {Outcome::refused, {}, std::move(reason)}; }
ForeignValue mapped(Node node) { return {Outcome::mapped, std::move(node), ""}; }
ForeignValue without_effect(std::string reason) { return {Outcome::no_effect, {}, std::move(reason)}; }

ForeignValue expected(const std::string& values, const Node& node) {
  return refused(formatted("expected {}, found {}", values, describe(node)));
}

// A torchtune model builder's name holds the method: lora_llama3_2_1b, qlora_..., dora_..., or neither.
std::string builder_method(const std::string& word) {
  if (word.starts_with("qlora_")) return "qlora";
  if (word.starts_with("lora_")) return "lora";
  if (word.starts_with("qdora_")) return "qdora";
  return word.starts_with("dora_") ? "dora" : "full";
}

// Nothing is a word of some rows: what a tool has by default is taken away by it.
bool says_nothing(const Alias& row, const Node& node) {
  return node.kind == Node::Kind::null && std::any_of(row.words.begin(), row.words.end(),
                                                      [](const Word& word) { return word.theirs == "null"; });
}

// "... does not exist here; adamw does": what sets that word.
std::string closest(const Alias& row, const std::string& key, std::string_view why) {
  constexpr std::string_view kEnd = " does";
  const size_t at = why.rfind("; ");
  if (at == std::string_view::npos || !why.ends_with(kEnd)) return "";
  const std::string_view word = why.substr(at + 2, why.size() - at - 2 - kEnd.size());
  const bool is_known = std::any_of(row.words.begin(), row.words.end(), [&](const Word& one) {
    return one.theirs == word && !one.ours.starts_with('!');
  });
  return is_known ? formatted(": --set {}={}", key, word) : "";
}

ForeignValue read_word(const Alias& row, const std::string& key, const Node& node) {
  if (node.kind != Node::Kind::scalar && !says_nothing(row, node)) return expected("a word", node);
  std::string word = node.kind == Node::Kind::null ? "null" : word_of(node, key);
  if (row.to == "@method" && key.ends_with(kComponent)) word = builder_method(word);
  std::vector<std::string> known;
  for (const auto& [theirs, ours] : row.words) {
    if (word != theirs) {
      if (!ours.starts_with('!')) known.emplace_back(theirs);
      continue;
    }
    if (ours.starts_with('!'))
      return refused(formatted("'{}': {}{}", excerpt(node.text), ours.substr(1), closest(row, key, ours)));
    if (ours.empty()) return without_effect(std::string(row.note.empty() ? "off, as here" : row.note));
    return mapped(scalar_at(node, ours));
  }
  return refused(formatted("'{}' is not known here{}", excerpt(node.text),
                           did_you_mean(word.substr(0, 40), known, "; known are " + join(known, ", "))));
}

ForeignValue read_flag(const Node& node, bool inverse) {
  auto flag = read_foreign_flag(node);
  if (!flag && (node.is_word("1") || node.is_word("0"))) flag = node.is_word("1");  // of a command line
  if (!flag) return expected("true or false", node);
  return mapped(scalar_at(node, *flag != inverse ? "true" : "false"));
}

ForeignValue read_whole(const Node& node, bool minus_one_is_none) {
  const auto whole = read_foreign_whole(node);
  if (!whole) return expected("a whole number", node);
  if (minus_one_is_none && *whole <= 0) return without_effect("no limit");
  return mapped(scalar_at(node, std::to_string(*whole)));
}

}  // namespace

Node scalar_at(const Node& at, std::string_view text) {
  Node node;
  node.kind = Node::Kind::scalar;
  node.text = text;
  node.line = at.line;
  node.key_line = at.key_line;
  return node;
}

Node list_at(const Node& at, const std::vector<std::string>& words) {
  Node node;
  node.kind = Node::Kind::list;
  node.line = at.line;
  node.key_line = at.key_line;
  for (const std::string& word : words) node.items.push_back(scalar_at(at, word));
  return node;
}

std::optional<bool> read_foreign_flag(const Node& node) {
  if (node.kind != Node::Kind::scalar) return std::nullopt;
  if (is_one_of(node.text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return true;
  if (is_one_of(node.text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) return false;
  return std::nullopt;
}

bool is_off(const Node& node) {
  if (node.kind == Node::Kind::null) return true;
  if (node.kind != Node::Kind::scalar) return node.items.empty();
  if (const auto flag = read_foreign_flag(node)) return !*flag;
  if (const auto number = read_foreign_number(node)) return *number == 0.0;
  return is_one_of(node.text, {"", "none", "None", "null", "never"});
}

std::optional<std::vector<std::string>> read_foreign_names(const Node& node) {
  std::vector<std::string> names;
  if (node.kind == Node::Kind::scalar) {
    for (const std::string& part : split(node.text, ',')) names.emplace_back(trim(part));
  } else if (node.kind == Node::Kind::list) {
    for (const Node& item : node.items) {
      if (item.kind != Node::Kind::scalar) return std::nullopt;
      names.push_back(item.text);
    }
  }
  std::erase(names, "");
  if (names.empty()) return std::nullopt;
  return names;
}

std::optional<double> read_foreign_number(const Node& node) {
  constexpr double kLargest = 9e15;  // whole numbers up to it are exact
  Node plain = node;
  plain.quoted = false;
  const bool begins = !plain.text.empty() && plain.text.front() != '_' && plain.text.back() != '_';
  if (begins) std::erase(plain.text, '_');  // YAML 1.1: 500_000
  return read_number(plain, {-kLargest, kLargest});
}

std::optional<int64_t> read_foreign_whole(const Node& node) {
  const auto number = read_foreign_number(node);
  if (!number || std::floor(*number) != *number) return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::string word_of(const Node& node, std::string_view key) {
  if (const auto flag = read_foreign_flag(node); flag && !key.ends_with(kComponent)) {
    // "no" and "off" are words of their own where a row lists them.
    return *flag ? "true" : "false";
  }
  if (!key.ends_with(kComponent) && key != "loss") return node.text;
  return in_small_letters(node.text.substr(node.text.rfind('.') + 1));
}

ForeignValue read_foreign(const Alias& row, const std::string& key, const Node& node) {
  if (row.reading == Reading::no_effect) return without_effect(std::string(row.note));
  if (row.reading == Reading::off) {
    const bool is_no_limit = key == "max_train_samples" && node.is_word("-1");
    if (is_off(node) || is_no_limit) return without_effect("off, as here");
    return refused(formatted("not supported: {}; --set {}=null trains without it", row.note, key));
  }
  if (node.kind == Node::Kind::null && row.reading == Reading::length) return mapped(node);
  const bool takes_null = row.to == "@clip" || row.reading == Reading::any || says_nothing(row, node);
  const bool is_empty_path =
      row.reading == Reading::path && node.kind == Node::Kind::scalar && node.text.empty();
  if ((node.kind == Node::Kind::null && !takes_null) || is_empty_path)
    return without_effect("nothing is given");
  switch (row.reading) {
    case Reading::flag:
      return read_flag(node, false);
    case Reading::inverse:
      return read_flag(node, true);
    case Reading::whole:
    case Reading::length:
      return read_whole(node, false);
    case Reading::limit:
      return read_whole(node, true);
    case Reading::words:
      return read_word(row, key, node);
    case Reading::names: {
      const auto names = read_foreign_names(node);
      if (!names) return is_off(node) ? without_effect("nothing is given") : expected("words", node);
      return mapped(list_at(node, *names));
    }
    default:
      break;
  }
  // PEFT takes no layers for all of them.
  if (row.to == "method.layers" && node.kind == Node::Kind::list && node.items.empty())
    return without_effect("nothing is given");
  Node plain = node;  // these tools take '1e-5' for a number
  if (node.kind == Node::Kind::scalar && read_foreign_number(node)) plain.quoted = false;
  return mapped(plain);
}

}  // namespace plimsoll
