// Options of where rows come from and what becomes of those that do not fit.
#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "recipe/hub.h"
#include "recipe/option_types.h"

namespace plimsoll {

using namespace option_types;  // NOLINT: as in options.cc

Option data_train() {
  return make(
      "data.train", [](auto& recipe) -> auto& { return recipe.data.train; },
      "a path, a list of paths or of {path, weight, rows}, or null",
      "files, folders or patterns such as data/*.parquet; weight: how often an epoch visits the rows; rows: "
      "a range such as \":1000\" or \"10%:\"",
      read_sources, [](const std::vector<TrainSource>& sources) { return print(sources); });
}

Option data_columns() {
  static const std::vector<std::string> kNames = {
      "prompt",      "response", "messages", "tools",    "text",      "input_ids",    "labels",
      "instruction", "input",    "output",   "system",   "history",   "message_role", "message_content",
      "chosen",      "rejected", "margin",   "sentence", "sentence2", "label"};
  Option option;
  option.key = "data.columns";
  option.values = "a map such as {prompt: question, response: answer}";
  option.meaning = "names of the columns in the files: " + join(kNames, ", ");
  option.set = [](Recipe& recipe, const Node& node, Folder) {
    if (node.kind != Node::Kind::map) return false;
    for (const Node& item : node.items) {
      const auto column = read_text(item);
      if (std::find(kNames.begin(), kNames.end(), item.key) == kNames.end())
        throw UsageError(formatted("data.columns: '{}' is no column; there are {}", excerpt(item.key),
                                   join(kNames, ", ")));
      if (!column) return false;
      recipe.data.columns[item.key] = *column;
    }
    return true;
  };
  option.get = [](const Recipe& recipe) {
    Json columns = Json::object();
    for (const auto& [name, column] : recipe.data.columns) columns[name] = column;
    return columns;
  };
  return option;
}

Option data_truncation() {
  return choice<Truncation>(
      "data.truncation", [](auto& recipe) -> auto& { return recipe.data.truncation; },
      {{"right", Truncation::right},
       {"left", Truncation::left},
       {"drop", Truncation::drop},
       {"refuse", Truncation::refuse}},
      "the end that rows longer than max_length lose; drop: leave such rows out; refuse: stop with an error");
}

Option data_max_length() {
  static constexpr IntegerRange kTokens = {1, int64_t{1} << 24};
  Option option;
  option.key = "data.max_length";
  option.values = formatted("null, {}, or {{source, target}}", describe(kTokens));
  option.meaning =
      "maximum sequence length in tokens; longer rows are truncated. null: the length of the longest row. "
      "{source, target}: for task: seq2seq";
  option.set = [](Recipe& recipe, const Node& node, Folder) {
    auto& data = recipe.data;
    if (node.kind == Node::Kind::map) {
      const auto part = [&](std::string_view key) {
        const auto at =
            std::find_if(node.items.begin(), node.items.end(), [&](const Node& n) { return n.key == key; });
        return at == node.items.end() ? nullptr : &*at;
      };
      const Node* source = part("source");
      const Node* target = part("target");
      if (node.items.size() != 2 || source == nullptr || target == nullptr) return false;
      const auto most = read_integer(*source, kTokens), of_target = read_integer(*target, kTokens);
      if (!most || !of_target) return false;
      data.max_length = *most;
      data.target_length = *of_target;
      return true;
    }
    const auto length =
        node.kind == Node::Kind::null ? std::optional<int64_t>(kLongestRow) : read_integer(node, kTokens);
    if (!length) return false;
    data.max_length = *length;
    data.target_length = 0;
    return true;
  };
  option.get = [](const Recipe& recipe) {
    const auto& data = recipe.data;
    if (data.target_length > 0) return Json({{"source", data.max_length}, {"target", data.target_length}});
    return data.max_length == kLongestRow ? Json(nullptr) : Json(data.max_length);
  };
  return option;
}

Option data_packing() {
  Option option;
  option.key = "data.packing";
  option.values = "true, false or joined";
  option.meaning =
      "sequence packing: several rows in one sequence, without attention between them. joined: texts are "
      "joined and cut into sequences of data.max_length, with attention between them";
  option.set = [](Recipe& recipe, const Node& node, Folder) {
    const auto flag = node.is_word("joined") ? std::optional(false) : read_boolean(node);
    if (!flag) return false;
    recipe.data.packing = *flag;
    recipe.data.joined = node.is_word("joined");
    return true;
  };
  option.get = [](const Recipe& recipe) {
    return recipe.data.joined ? Json("joined") : Json(recipe.data.packing);
  };
  return option;
}

Option data_train_on_prompt() {
  return make(
      "data.train_on_prompt", [](auto& recipe) -> auto& { return recipe.data.train_on_prompt; },
      "true, false or messages",
      "compute the loss on prompts too; messages: on whole conversations, but not on prompts of "
      "prompt-response rows",
      [](const Node& node, Folder) -> std::optional<PromptLoss> {
        if (node.is_word("messages")) return PromptLoss::messages;
        const auto flag = read_boolean(node);
        if (!flag) return std::nullopt;
        return *flag ? PromptLoss::yes : PromptLoss::no;
      },
      [](PromptLoss loss) {
        return loss == PromptLoss::messages ? Json("messages") : Json(loss == PromptLoss::yes);
      });
}

Option data_special_tokens() {
  static const std::vector<std::string> kNames = {"bos_token", "eos_token", "eot_token", "unk_token"};
  Option option;
  option.key = "data.special_tokens";
  option.values = "a map such as {eos_token: <|im_end|>}";
  option.meaning =
      "eos_token: the token that ends texts, if not the tokenizer's; eot_token: the token that ends turns in "
      "axolotl's templates; other tokens must match the tokenizer's";
  option.set = [](Recipe& recipe, const Node& node, Folder) {
    if (node.kind != Node::Kind::map) return false;
    std::map<std::string, std::string> tokens;
    for (const Node& item : node.items) {
      const auto text = read_text(item);
      if (!text || std::find(kNames.begin(), kNames.end(), item.key) == kNames.end()) return false;
      tokens[item.key] = *text;
    }
    recipe.data.special_tokens = std::move(tokens);
    return true;
  };
  option.get = [](const Recipe& recipe) {
    Json tokens = Json::object();
    for (const auto& [name, text] : recipe.data.special_tokens) tokens[name] = text;
    return tokens;
  };
  return option;
}

Option data_template_source() {
  return make(
      "data.template_source", [](auto& recipe) -> auto& { return recipe.data.template_source; },
      "a text in Jinja, a path that ends in .jinja, or null",
      "a chat template in Jinja that replaces the model's own",
      [](const Node& node, Folder folder) -> std::optional<std::optional<std::string>> {
        if (node.kind == Node::Kind::null) return std::optional<std::string>();
        if (node.kind != Node::Kind::scalar) return std::nullopt;
        if (node.text.find("{%") != std::string::npos || node.text.find("{{") != std::string::npos)
          return std::make_optional(std::optional(node.text));
        const auto path = read_path(node, folder);
        if (!path || !path->ends_with(".jinja")) return std::nullopt;
        return std::make_optional(path);
      },
      [](const std::optional<std::string>& source) { return print(source); });
}

Option save_hub() {
  return make(
      "save.hub", [](auto& recipe) -> auto& { return recipe.save.hub; },
      "a name such as me/my-model, or null",
      "print the command that uploads the result to the Hugging Face hub under this name",
      [](const Node& node, Folder) -> std::optional<std::optional<std::string>> {
        if (node.kind == Node::Kind::null) return std::optional<std::string>();
        const auto name = read_text(node);
        if (!name || !is_hub_name(*name, true)) return std::nullopt;
        return std::make_optional(name);
      },
      [](const std::optional<std::string>& name) { return print(name); });
}

Option data_on_error() {
  return choice<RowErrors>(
      "data.on_error", [](auto& recipe) -> auto& { return recipe.data.on_error; },
      {{"stop", RowErrors::stop}, {"skip", RowErrors::skip}},
      "stop the run at a row that cannot be read, or skip and count it");
}

}  // namespace plimsoll
