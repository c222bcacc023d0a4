#include "prepare/rendering_words.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "chat/conversation.h"
#include "data/encode/messages.h"

namespace plimsoll {
namespace {

// Finds what looks like a special token: <|im_start|>, <start_of_turn>, </s>. A doubled bracket (<<SYS>>) is
// text to those who use it.
std::vector<std::string> marks_of(std::string_view text) {
  constexpr size_t kLongest = 40;
  std::vector<std::string> marks;
  for (size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    const size_t end = text.find_first_of("<> \t\n", at + 1);
    const bool doubled = at > 0 && text[at - 1] == '<';
    if (end == std::string_view::npos || text[end] != '>' || end - at > kLongest || end == at + 1 || doubled)
      continue;
    marks.emplace_back(text.substr(at, end + 1 - at));
  }
  return marks;
}

int64_t tokens_of(const Tokenizer& tokenizer, const std::string& text) {
  return std::ssize(tokenizer.encode(text, false));
}

// Marks that the template puts around a question and its answer, and what those two then cost.
std::string missing_tokens(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  Conversation once = conversation_of("a", "b"), twice = once;
  twice.messages.insert(twice.messages.end(), once.messages.begin(), once.messages.end());
  std::string first, both;
  try {
    first = chat.render(once, false);
    both = chat.render(twice, false);
  } catch (const TemplateError&) {
    return "";  // its conversations look different; rows are rendered, or say what is wrong
  }
  std::vector<std::string> marks = marks_of(both), before = marks_of(first), missing;
  int64_t instead = 0;  // tokens that the second round would have less
  for (size_t i = 0; i < marks.size(); ++i) {
    if (tokenizer.token_id(marks[i])) continue;
    if (i >= before.size()) instead += tokens_of(tokenizer, marks[i]) - 1;
    if (std::find(missing.begin(), missing.end(), marks[i]) == missing.end()) missing.push_back(marks[i]);
  }
  if (missing.empty()) return "";
  const int64_t contents = tokens_of(tokenizer, "a") + tokens_of(tokenizer, "b");
  const int64_t cost = tokens_of(tokenizer, both) - tokens_of(tokenizer, first) - contents;
  return formatted(
      "{} writes {}, for which this tokenizer has no token{}: a prompt with its response costs "
      "{} tokens in addition to their texts instead of {}",
      chat.published().name(), join(missing, ", "), missing.size() > 1 ? "s" : "", cost, cost - instead);
}

bool has_own_template(const Resolved& resolved) {
  const Recipe& recipe = resolved.recipe;
  try {
    return ChatTemplate::of_folder(recipe.model, std::nullopt, recipe.data.template_source,
                                   &resolved.files->texts())
        .has_value();
  } catch (const Error&) {
    return true;  // one that is not used need not be whole
  }
}

// The reason why texts that are a prompt and its response are no turns; empty where plain texts were asked
// for.
std::string why_plain(const Recipe& recipe, const ColumnBinding& binding) {
  if (recipe.data.chat_template == "trl") return "as TRL has texts (data.template: trl)";
  const bool pairs = binding.format == RowFormat::preference && recipe.data.chat_template == "auto";
  if (!pairs || binding.ready) return "";
  if (recipe.data.reading == kFirstReading) return "as when the run began (data.reading: 1)";
  return "since they have no column 'prompt'";
}

}  // namespace

std::vector<std::string> rendering_words(const Resolved& resolved, const ColumnBinding& binding,
                                         const DataSetup& data) {
  const Recipe& recipe = resolved.recipe;
  const std::string& name = recipe.data.chat_template;
  const bool answers = binding.format == RowFormat::preference || binding.format == RowFormat::alpaca ||
                       binding.format == RowFormat::prompt_response;
  if (!data.chat) {
    const std::string why = answers && !rule_of(recipe.task).has_targets ? why_plain(recipe, binding) : "";
    if (why.empty() || !has_own_template(resolved)) return {};
    return {formatted("are used as they are, {}: not rendered by the model's chat template", why)};
  }
  std::vector<std::string> lines = {"rendered by " + data.chat->published().name()};
  const bool named = name != "auto" && name != "trl";
  if (!data.tokenizer || (!named && !recipe.data.template_source)) return lines;
  if (std::string missing = missing_tokens(*data.chat, *data.tokenizer); !missing.empty())
    lines.push_back(std::move(missing));
  return lines;
}

}  // namespace plimsoll
