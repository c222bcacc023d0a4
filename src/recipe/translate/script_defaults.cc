#include "recipe/translate/script_defaults.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "recipe/aliases.h"
#include "recipe/option.h"
#include "recipe/translate/foreign_value.h"
#include "recipe/translate/layer.h"

namespace plimsoll {
namespace {

// Keys of ours and parts (Alias::to) whose defaults are taken. Others change nothing that is trained, or
// do so only together with other keys.
constexpr std::array<std::string_view, 29> kOfTraining = {"model",
                                                          "data.train",
                                                          "@dataset",
                                                          "@eval_share",
                                                          "data.max_length",
                                                          "@micro",
                                                          "@accumulation",
                                                          "optimizer.lr",
                                                          "optimizer.name",
                                                          "optimizer.eps",
                                                          "@beta1",
                                                          "@beta2",
                                                          "@clip",
                                                          "optimizer.weight_decay",
                                                          "@schedule",
                                                          "@warmup_ratio",
                                                          "@warmup_steps",
                                                          "@epochs",
                                                          "schedule.max_steps",
                                                          "method.neftune_alpha",
                                                          "@use_lora",
                                                          "@four_bit",
                                                          "@eight_bit",
                                                          "@bf16",
                                                          "@fp16",
                                                          "data.packing",
                                                          "@stored_type",
                                                          "@total_batch",
                                                          "data.train_on_prompt"};
// The same of adapters: a script that can train them declares them also where it does not.
constexpr std::array<std::string_view, 7> kOfAdapters = {"method.r",           "method.alpha",  "@dropout",
                                                         "@targets",           "method.rslora", "method.dora",
                                                         "method.double_quant"};
// Two keys of one of these say the same thing in two ways.
constexpr std::array<std::array<std::string_view, 2>, 5> kTogether = {{{"data.train", "@dataset"},
                                                                       {"@warmup_ratio", "@warmup_steps"},
                                                                       {"@bf16", "@fp16"},
                                                                       {"@four_bit", "@eight_bit"},
                                                                       {"@micro", "@total_batch"}}};

bool is_one_of(std::string_view to, auto& names) {
  return std::find(std::begin(names), std::end(names), to) != std::end(names);
}

const Alias* row_of(std::string_view key) {
  const Alias* row = find_alias(key, Tool::trl);
  return row != nullptr ? row : find_alias(key, Tool::script);
}

void collect(const Node& map, const std::string& prefix, std::set<std::string, std::less<>>& to) {
  if (map.kind != Node::Kind::map) return;
  for (const Node& item : map.items) {
    const std::string key = prefix + item.key;
    if (const Alias* row = row_of(key)) to.emplace(row->to);
    if (key == "model") to.emplace(key);
    collect(item, key + ".", to);
  }
}

bool turns_on(const Node& value) { return read_foreign_flag(value) == true; }

// A script decides by itself what blocks are.
bool is_own_word(const std::string& key) {
  const Alias* row = row_of(key);
  return row == nullptr ? find_option(key) == nullptr : row->to == "@block_size";
}

// The one name that a script hands an argument on by; nullptr where there are several, or no known one.
const ScriptUse* use_of(const std::string& argument, const ScriptText& script) {
  const ScriptUse* only = nullptr;
  for (const ScriptUse& use : script.uses) {
    const Alias* row = use.argument == argument ? row_of(use.name) : nullptr;
    if (row == nullptr) continue;
    if (only != nullptr && row_of(only->name) != row) return nullptr;
    only = &use;
  }
  return only;
}

}  // namespace

namespace {

// As Python has it: 0, an empty text and None are false.
bool is_truthy(const Node& value) {
  if (const auto flag = read_foreign_flag(value)) return *flag;
  if (const auto number = read_foreign_number(value)) return *number != 0;
  return value.kind != Node::Kind::null && !value.is_word("None") &&
         !(value.text.empty() && value.items.empty());
}

std::optional<bool> holds(const ScriptChoice& choice, const Node& value) {
  if (choice.test.empty()) return is_truthy(value);
  const auto number = read_foreign_number(value), than = read_foreign_number(choice.than);
  if (choice.test == "==" || choice.test == "!=") {
    const bool same = number && than ? *number == *than : value.text == choice.than.text;
    return same == (choice.test == "==");
  }
  if (!number || !than) return std::nullopt;
  if (choice.test == ">") return *number > *than;
  if (choice.test == ">=") return *number >= *than;
  if (choice.test == "<") return *number < *than;
  if (choice.test == "<=") return *number <= *than;
  return std::nullopt;
}

}  // namespace

void decide_choices(const Node& keys, ScriptText& script) {
  std::vector<ScriptArgument> decided;
  for (const ScriptChoice& choice : script.choices) {
    const auto declared = std::ranges::find(script.arguments, choice.argument, &ScriptArgument::name);
    const Node* value = find_node(keys, choice.argument);
    if (value == nullptr && declared != script.arguments.end()) value = &declared->value;
    const std::optional<bool> answer = value == nullptr ? std::nullopt : holds(choice, *value);
    if (answer)
      decided.push_back({choice.name, *answer != choice.is_denied ? choice.yes : choice.no, choice.line});
    else
      script.uses.push_back({"", choice.name, choice.line});  // worked out
  }
  script.arguments.insert(script.arguments.end(), decided.begin(), decided.end());
}

std::vector<ScriptUse> rename_by_use(Node& keys, ScriptText& script) {
  std::vector<ScriptUse> renamed;
  std::set<std::string> known;
  for (const Node& item : keys.items) known.insert(item.key);
  const auto rename = [&](std::string& name) {
    const ScriptUse* use = is_own_word(name) ? use_of(name, script) : nullptr;
    if (use == nullptr || known.contains(use->name)) return;
    if (std::ranges::find(renamed, name, &ScriptUse::argument) == renamed.end()) renamed.push_back(*use);
    name = use->name;
  };
  for (Node& item : keys.items) rename(item.key);
  for (ScriptArgument& one : script.arguments) rename(one.name);
  return renamed;
}

WorkedOut worked_out(const std::vector<const Node*>& said, const ScriptText& script) {
  static const std::map<std::string, std::string, std::less<>> kKeys = {
      {"optimizer.lr", "optimizer.lr"},
      {"data.max_length", "data.max_length"},
      {"schedule.max_steps", "schedule.max_steps"},
      {"@epochs", "schedule.epochs"}};
  std::set<std::string, std::less<>> known;
  for (const Node* tree : said) collect(*tree, "", known);
  for (const ScriptArgument& one : script.arguments)
    if (const Alias* row = row_of(one.name)) known.emplace(row->to);
  for (const ScriptUse& use : script.uses) {
    const Alias* row = use.argument.empty() ? row_of(use.name) : nullptr;
    const auto key = row == nullptr || known.contains(row->to) ? kKeys.end() : kKeys.find(row->to);
    if (key != kKeys.end()) return {use.name, key->second, use.line};
  }
  return {};
}

bool says_adapters(const std::vector<const Node*>& said, const std::vector<ScriptArgument>& arguments) {
  std::set<std::string, std::less<>> known;
  for (const Node* tree : said) {
    collect(*tree, "", known);
    for (const char* key : {"method", "method.type"})
      if (find_node(*tree, key) != nullptr) return true;
  }
  for (const ScriptArgument& one : arguments)
    if (const Alias* row = row_of(one.name); row != nullptr && row->to == "@use_lora") return true;
  return known.contains("@use_lora") || known.contains("@method") ||
         std::ranges::any_of(kOfAdapters, [&](std::string_view to) { return known.contains(to); });
}

std::vector<ScriptArgument> script_defaults(const std::vector<const Node*>& said,
                                            std::vector<ScriptArgument> arguments) {
  std::set<std::string, std::less<>> known;
  for (const Node* tree : said) collect(*tree, "", known);
  bool adapts = std::ranges::any_of(kOfAdapters, [&](std::string_view to) { return known.contains(to); });
  for (const Node* tree : said)
    for (const Node& item : tree->items)
      if (const Alias* row = row_of(item.key); row != nullptr && row->to == "@use_lora")
        adapts = turns_on(item);
  std::map<std::string, int, std::less<>> keys;  // how many arguments mean it
  for (const ScriptArgument& one : arguments)
    if (const Alias* row = row_of(one.name)) {
      ++keys[std::string(row->to == "@dataset" ? "data.train" : row->to)];
      if (row->to == "@use_lora" && !known.contains(row->to) && turns_on(one.value)) adapts = true;
    }
  const auto says_already = [&](std::string_view to) {
    if (known.contains(to)) return true;
    return std::ranges::any_of(kTogether, [&](const auto& both) {
      return is_one_of(to, both) && (known.contains(both[0]) || known.contains(both[1]));
    });
  };
  // The best checkpoint is known where there are rows to evaluate on.
  const bool evaluates = known.contains("@eval_share") || known.contains("data.eval") ||
                         keys.contains("@eval_share") || keys.contains("data.eval");
  std::erase_if(arguments, [&](const ScriptArgument& one) {
    const Alias* row = row_of(one.name);
    if (row != nullptr && row->to == "@best" && !says_already(row->to)) return !evaluates;
    if (row == nullptr || says_already(row->to)) return true;
    if (keys[std::string(row->to == "@dataset" ? "data.train" : row->to)] > 1) return true;
    if (one.value.kind == Node::Kind::scalar && (one.value.text.empty() || one.value.text == "auto"))
      return true;
    return !is_one_of(row->to, kOfTraining) && !(adapts && is_one_of(row->to, kOfAdapters));
  });
  return arguments;
}

}  // namespace plimsoll
