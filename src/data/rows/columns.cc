#include "data/rows/columns.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "data/files/cell.h"

namespace plimsoll {
namespace {

// Names that data sets in use give to prompt and response.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kPromptResponseNames = {{
    {"prompt", "response"},
    {"prompt", "completion"},
    {"instruction", "output"},
    {"question", "answer"},
    {"source", "target"},
    {"document", "summary"},
    {"article", "highlights"},
    {"query", "response"},
    {"input", "output"},
}};

// OpenAI's name of a column of conversations, and ShareGPT's.
constexpr std::array<std::string_view, 2> kMessagesNames = {"messages", "conversations"};

// The keys of a turn, as ShareGPT's and OpenAI's conversations hold it.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kTurnNames = {
    {{"from", "value"}, {"role", "content"}}};

using Names = std::map<std::string, std::string>;

bool has(std::span<const Column> columns, std::string_view name) {
  return std::any_of(columns.begin(), columns.end(), [&](const Column& c) { return c.name == name; });
}

bool has_outer_space(const std::string& name) { return name.starts_with(' ') || name.ends_with(' '); }

// A column's name within a command, which shells take between apostrophes. Letters of any language, with spaces within,
// need no quotes in YAML.
std::string as_value(const std::string& name) {
  const bool plain = !has_outer_space(name) && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == ' ' || c >= 0x80;
  });
  return plain ? name : formatted("\"{}\"", name);
}

std::string list_columns(std::span<const Column> columns) {
  std::vector<std::string> names;
  for (const auto& [name, kind, type] : columns)
    names.push_back(formatted("{} ({})", has_outer_space(name) ? as_value(name) : name, type));
  return join(names, ", ");
}

// A command's words that name two parts.
std::string naming(std::string_view first, const std::string& of_first, std::string_view second,
                   const std::string& of_second) {
  return formatted("--set 'data.columns={{{}: {}, {}: {}}}'", first, as_value(of_first), second,
                   as_value(of_second));
}

std::string naming(const std::string& prompt, const std::string& response) {
  return naming("prompt", prompt, "response", response);
}

// True of names that such a command can say.
bool can_be_named(const std::string& name) {
  return !name.empty() && std::none_of(name.begin(), name.end(), [](unsigned char c) {
    return c == '\'' || c == '"' || c == '\\' || std::iscntrl(c) != 0;
  });
}

// Columns that a command can name, in the order of the file: those of texts, or those of single values.
std::vector<std::string> plain_columns(std::span<const Column> columns, bool texts) {
  std::vector<std::string> names;
  for (const Column& column : columns)
    if (can_be_named(column.name) &&
        (column.kind == ColumnKind::text || (!texts && column.kind == ColumnKind::plain)))
      names.push_back(column.name);
  return names;
}

// Advice on naming columns of text that are a prompt and a response. The planner does not guess which is
// which: the other way round a model would be trained to ask.
std::string how_to_name(std::span<const Column> columns) {
  const std::vector<std::string> texts = plain_columns(columns, true);
  if (texts.empty())
    return "None of them is text that can be named: rows have a prompt and a response, a text, or messages.";
  if (texts.size() == 1)
    return formatted("To train on that text say\n  --set 'data.columns={{text: {}}}'", as_value(texts[0]));
  if (texts.size() == 2)
    return formatted("Which is the prompt and which the response is not known: say\n  {}\n  or\n  {}",
                     naming(texts[0], texts[1]), naming(texts[1], texts[0]));
  return formatted("Which of {} is the prompt and which the response is not known: say {}", join(texts, ", "),
                   naming("COLUMN", "COLUMN"));
}

// The same of one part, where the other one is known: one of the columns next to it.
std::string how_to_label(std::span<const Column> columns, const char* part, const std::string& other) {
  std::vector<std::string> found = plain_columns(columns, part == std::string_view("sentence"));
  std::erase(found, other);
  const std::string name = found.size() == 1 ? found.front() : "COLUMN";
  return formatted("which of them is the {} is not known: say --set 'data.columns={{{}: {}}}'",
                   part == std::string_view("sentence") ? "text" : part, part, as_value(name));
}

// The same of a text and its label: a label that is no text is known by that, where it is the only such column.
std::string how_to_label(std::span<const Column> columns) {
  const std::string start = "which of them is the text and which the label is not known: say";
  const auto words = [](const std::string& text, const std::string& label) {
    return naming("sentence", text, "label", label);
  };
  const std::vector<std::string> texts = plain_columns(columns, true), all = plain_columns(columns, false);
  if (all.size() == 2 && texts.size() == 1)
    return formatted("{} {}", start, words(texts[0], all[0] == texts[0] ? all[1] : all[0]));
  if (texts.size() == 2)
    return formatted("{}\n  {}\n  or\n  {}", start, words(texts[0], texts[1]), words(texts[1], texts[0]));
  return formatted("{} {}", start, words("COLUMN", "COLUMN"));
}

std::vector<std::string> parts_of(RowFormat format) {
  switch (format) {
    case RowFormat::prompt_response:
      return {"prompt", "response"};
    case RowFormat::messages:
      return {"messages", "tools", "system", "message_role", "message_content"};
    case RowFormat::text:
      return {"text"};
    case RowFormat::input_ids:
      return {"input_ids", "labels"};
    case RowFormat::alpaca:
      return {"instruction", "output", "input", "system", "history"};
    case RowFormat::preference:
      return {"chosen",  "rejected", "prompt", "input",        "system",
              "history", "margin",   "tools",  "message_role", "message_content"};
    case RowFormat::sentence_label:
      return {"sentence", "label", "sentence2", "token_type_ids"};
  }
  throw InternalError("parts_of: no such format");
}

// Rows that other tasks learn from are known, so that they get a better answer than that their columns are
// unknown.
void refuse_rows_of_other_tasks(std::span<const Column> columns, const std::string& where) {
  if (has(columns, "chosen") && has(columns, "rejected"))
    throw UsageError(where +
                     ": has rows of preferences (chosen, rejected), which task: dpo and task: reward learn "
                     "from. To learn the chosen answers alone say data.columns: "
                     "{prompt: prompt, response: chosen}.");
  if (has(columns, "label") && (has(columns, "sentence") || has(columns, "text")))
    throw UsageError(where +
                     ": has rows of labels, which need task: classify. To train on the text alone set "
                     "data.format: text.");
}

// The format whose parts data.columns names, or else the one whose columns exist.
RowFormat detect_format(std::span<const Column> columns, const Names& names, const std::string& where) {
  for (const auto& [format, label] : kRowFormats) {
    if (format == RowFormat::preference) break;  // those of tasks that score sequences are named by the task
    for (const std::string& part : parts_of(format))
      if (names.contains(part)) return format;
  }
  if (has(columns, "input_ids")) return RowFormat::input_ids;
  for (const std::string_view name : kMessagesNames)
    if (has(columns, name) && find_column(columns, std::string(name), where).kind == ColumnKind::other)
      return RowFormat::messages;
  if (has(columns, "instruction") && has(columns, "output") && has(columns, "input"))
    return RowFormat::alpaca;
  for (const auto& [prompt, response] : kPromptResponseNames)
    if (has(columns, prompt) && has(columns, response)) return RowFormat::prompt_response;
  if (has(columns, "text") && !has(columns, "label")) return RowFormat::text;
  for (const std::string_view name : kMessagesNames)  // the JSON text of the list
    if (has(columns, name)) return RowFormat::messages;
  refuse_rows_of_other_tasks(columns, where);
  for (const auto& [speaker, said] : kTurnNames)
    if (has(columns, speaker) && has(columns, said))
      throw UsageError(formatted(
          "{}: has a turn of a conversation in each row ({}, {}), and nothing says which turns belong "
          "together. Each row is one conversation: {{\"messages\": [{{\"role\": ..., \"content\": "
          "...}}, ...]}}.",
          where, speaker, said));
  throw UsageError(formatted("{}: no known format has the columns {}. {}", where, list_columns(columns),
                             how_to_name(columns)));
}

// The column for prompt or response: the named one, or of the first known pair that exists whole.
std::pair<std::string, std::string> prompt_and_response(std::span<const Column> columns, const Names& names,
                                                        const std::string& where) {
  std::pair<std::string, std::string> found = {"prompt", "response"};
  for (const auto& [prompt, response] : kPromptResponseNames) {
    if (!has(columns, prompt) || !has(columns, response)) continue;
    found = {std::string(prompt), std::string(response)};
    break;
  }
  // Alpaca's third column belongs to the prompt. Dropping it in silence would train on half the question.
  if (found.first == "instruction" && has(columns, "input") && !names.contains("prompt"))
    throw UsageError(
        where +
        ": has 'input' beside 'instruction', which prompt-response would drop. Say data.format: alpaca, "
        "or leave 'input' out by data.columns: {prompt: instruction, response: output}.");
  if (names.contains("prompt")) found.first = names.at("prompt");
  if (names.contains("response")) found.second = names.at("response");
  return found;
}

// The columns of conversations: they are read as JSON, so that only their absence is an error here. A system message of
// a column of its own is read only where that is named.
void bind_messages(std::span<const Column> columns, const Names& names, const std::string& where,
                   ColumnBinding& binding) {
  const auto bind = [&](const char* part, const std::string& column) {
    binding.columns.push_back(find_column(columns, column, where).name);
    binding.parts.emplace_back(part);
  };
  std::string messages(kMessagesNames.front());
  for (const std::string_view name : kMessagesNames)
    if (!has(columns, messages) && has(columns, name)) messages = name;
  bind("messages", names.contains("messages") ? names.at("messages") : messages);
  if (names.contains("tools"))
    bind("tools", names.at("tools"));
  else if (has(columns, "tools"))
    bind("tools", "tools");
  if (names.contains("system")) bind("system", names.at("system"));
  if (names.contains("message_role")) binding.message_role = names.at("message_role");
  if (names.contains("message_content")) binding.message_content = names.at("message_content");
}

// The columns of Alpaca rows and what they are; they are read as JSON, too. An input belongs to an
// instruction of the usual name; if columns are named, and for systems and histories, only what is named is
// read.
void bind_alpaca(std::span<const Column> columns, const Names& names, const std::string& where,
                 ColumnBinding& binding) {
  for (const std::string& part : parts_of(RowFormat::alpaca)) {
    const bool required = part == "instruction" || part == "output";
    const bool named = names.contains(part);
    const std::string column = named ? names.at(part) : part;
    const bool is_there = has(columns, column);
    const bool comes_along = part == "input" && !names.contains("instruction") && is_there;
    // One that is named as usual is read where it is there.
    const bool left_out = !required && column == part && !is_there;
    if (!required && (left_out || (!named && !comes_along))) continue;
    binding.columns.push_back(find_column(columns, column, where).name);
    binding.parts.push_back(part);
  }
}

// Columns that are read as JSON: what is required must be there, what is optional is read where it is there
// or named.
void bind_parts(std::span<const Column> columns, const Names& names, const std::string& where,
                std::initializer_list<std::pair<std::string_view, bool>> parts, ColumnBinding& binding) {
  for (const auto& [part, required] : parts) {
    const std::string key(part);
    const std::string column = names.contains(key) ? names.at(key) : key;
    if (!required && !names.contains(key) && !has(columns, column)) continue;
    binding.columns.push_back(find_column(columns, column, where).name);
    binding.parts.push_back(key);
  }
}

// Answers that are lists of messages, or ready token ids.
void bind_message_keys(std::span<const Column> columns, const Names& names, const std::string& where,
                       ColumnBinding& binding) {
  const Column& answer = find_column(columns, binding.columns.front(), where);
  if (answer.kind == ColumnKind::plain)
    throw UsageError(formatted("{}: column '{}' is {}, a text or a list is expected. The columns are {}.",
                               where, answer.name, answer.type, list_columns(columns)));
  const ColumnKind kind = answer.kind;
  binding.talks = kind == ColumnKind::other;
  binding.ready = kind == ColumnKind::ids;
  if (names.contains("message_role")) binding.message_role = names.at("message_role");
  if (names.contains("message_content")) binding.message_content = names.at("message_content");
}

// The names, and those of columns of ready token ids for the parts that are not named and not there.
Names with_ready_ids(std::span<const Column> columns, Names names,
                     std::initializer_list<std::pair<const char*, const char*>> parts) {
  for (const auto& [part, ids] : parts)
    if (!names.contains(part) && !has(columns, part) && has(columns, ids)) names[part] = ids;
  return names;
}

// A text under one of the names that data sets in use give it, and GLUE's pairs; with its label, or without.
void bind_sentences(std::span<const Column> columns, Names names, bool labelled, const std::string& where,
                    ColumnBinding& binding) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kPairs = {{
      {"sentence1", "sentence2"},
      {"#1 String", "#2 String"},
      {"question1", "question2"},
      {"question", "sentence"},
      {"premise", "hypothesis"},
      {"text", "text_pair"},
      {"sentence", ""},
  }};
  for (const auto& [first, second] : kPairs) {
    if (names.contains("sentence")) break;
    const bool pair = has(columns, second);
    if (!has(columns, first) || (!pair && !second.empty() && first != "text")) continue;
    names["sentence"] = first;
    if (pair) names.emplace("sentence2", second);
  }
  const auto called = [&](const char* part) {
    return names.contains(part) ? names.at(part) : has(columns, part) ? std::string(part) : std::string();
  };
  const std::string text = called("sentence"), label = called("label");
  const auto refuse = [&](const std::string& how) {
    throw UsageError(formatted("{}: has {}; {}", where, list_columns(columns), how));
  };
  if (text.empty() && label.empty() && labelled) refuse(how_to_label(columns));
  if (text.empty()) refuse(how_to_label(columns, "sentence", label));
  if (label.empty() && labelled) refuse(how_to_label(columns, "label", text));
  bind_parts(columns, names, where, {{"sentence", true}, {"sentence2", false}, {"token_type_ids", false}},
             binding);
  if (labelled) bind_parts(columns, names, where, {{"label", true}}, binding);
  binding.ready = find_column(columns, binding.columns.front(), where).kind == ColumnKind::ids;
}

// Answers without a column 'prompt' may be whole conversations. Next to a question of another name they are not: Alpaca's
// instruction is the prompt, with its input; dropping another name in silence would train answers to nothing. Whether answers
// that are messages begin with a question of their own, each row shows (begins_with_question).
void name_question(std::span<const Column> columns, const std::string& where, Names& names) {
  if (names.contains("prompt") || has(columns, "prompt")) return;
  const auto chosen = names.find("chosen");
  if (chosen != names.end() && chosen->second == "chosen") return;  // as the message below says
  if (chosen != names.end() && chosen->second == "chosen_input_ids")
    return;  // ready rows hold their question
  if (has(columns, "instruction")) {
    names["prompt"] = "instruction";
    if (has(columns, "input")) names.try_emplace("input", "input");
    return;
  }
  const ColumnKind answers =
      find_column(columns, chosen == names.end() ? "chosen" : chosen->second, where).kind;
  for (const char* name : {"question", "query", "input"}) {
    if (!has(columns, name) || find_column(columns, name, where).kind != ColumnKind::text) continue;
    if (answers == ColumnKind::text)
      throw UsageError(formatted(
          "{}: has '{}' next to 'chosen' and 'rejected', and no 'prompt': the answers would be trained without it. Say "
          "--set 'data.columns={{prompt: {}}}', or --set 'data.columns={{chosen: chosen}}' where the answers hold it",
          where, name, name));
    if (answers != ColumnKind::other) return;
    names["prompt"] = name;
    return;
  }
}

// ms-swift's rows hold the chosen conversation as messages, and of the rejected one its last answer or all messages.
void name_answers(std::span<const Column> columns, Names& names) {
  if (names.contains("chosen") || names.contains("rejected") || has(columns, "chosen") ||
      !has(columns, "messages"))
    return;
  for (const char* rejected : {"rejected_response", "rejected_messages"}) {
    if (!has(columns, rejected)) continue;
    names["chosen"] = "messages";
    names["rejected"] = rejected;
    return;
  }
}

// Two answers with the prompt or without, and a margin.
void bind_preference(std::span<const Column> columns, Names names, const std::string& where,
                     ColumnBinding& binding) {
  names = with_ready_ids(
      columns, std::move(names),
      {{"chosen", "chosen_input_ids"}, {"rejected", "rejected_input_ids"}, {"prompt", "prompt_input_ids"}});
  name_answers(columns, names);
  name_question(columns, where, names);
  bind_parts(columns, names, where,
             {{"chosen", true}, {"rejected", true}, {"prompt", false}, {"margin", false}, {"tools", false}},
             binding);
  // One that is named as usual is read where it is there.
  for (const char* part : {"input", "system", "history"})
    if (names.contains(part) && (names.at(part) != part || has(columns, part)))
      bind_parts(columns, names, where, {{part, true}}, binding);
  bind_message_keys(columns, names, where, binding);
}

// One answer, under the first of the names that there is, and its prompt.
void bind_answer(std::span<const Column> columns, Names names, const std::string& where,
                 ColumnBinding& binding) {
  Names parts = names;
  for (const char* part : {"messages", "text", "input_ids", "response"})
    if (names.contains(part)) parts["chosen"] = names.at(part);
  for (const auto& [prompt, response] : kPromptResponseNames) {
    if (parts.contains("chosen") || !has(columns, prompt) || !has(columns, response)) continue;
    parts["chosen"] = response;
    parts.emplace("prompt", prompt);
  }
  for (const char* name : {"messages", "conversations", "response", "text", "input_ids"})
    if (!parts.contains("chosen") && has(columns, name)) parts["chosen"] = name;
  if (!parts.contains("chosen"))
    throw UsageError(
        formatted("{}: no column is known as an answer to score: {}. Name yours, such as --set "
                  "'data.columns={{prompt: question, response: answer}}'.",
                  where, list_columns(columns)));
  bind_parts(columns, parts, where, {{"chosen", true}, {"prompt", false}, {"tools", false}}, binding);
  bind_message_keys(columns, names, where, binding);
}

void check_column(std::span<const Column> columns, const std::string& name, ColumnKind kind,
                  const std::string& where) {
  const Column& column = find_column(columns, name, where);
  if (column.kind == kind) return;
  throw UsageError(formatted("{}: column '{}' is {}, {} is expected. The columns are {}.", where, name,
                             column.type, kind == ColumnKind::text ? "text" : "lists of integers",
                             list_columns(columns)));
}

void check_part_names(RowFormat format, const Names& names) {
  const std::vector<std::string> parts = parts_of(format);
  for (const auto& [part, column] : names)
    if (std::find(parts.begin(), parts.end(), part) == parts.end())
      throw UsageError(formatted("data.columns: the format {} has no part '{}'; it has {}.",
                                 to_string(format), part, join(parts, ", ")));
}

}  // namespace

ColumnBinding bind_columns(std::span<const Column> columns, std::optional<RowFormat> format,
                           const Names& names, const std::string& where) {
  ColumnBinding binding;
  binding.format = format ? *format : detect_format(columns, names, where);
  check_part_names(binding.format, names);
  const auto named = [&names](const std::string& part) {
    return names.contains(part) ? names.at(part) : part;
  };
  switch (binding.format) {
    case RowFormat::prompt_response: {
      const auto [prompt, response] = prompt_and_response(columns, names, where);
      binding.columns = {prompt, response};
      break;
    }
    case RowFormat::messages:
      bind_messages(columns, names, where, binding);
      return binding;
    case RowFormat::alpaca:
      bind_alpaca(columns, names, where, binding);
      return binding;
    case RowFormat::preference:
      bind_preference(columns, names, where, binding);
      return binding;
    case RowFormat::sentence_label:
      bind_sentences(columns, with_ready_ids(columns, names, {{"sentence", "input_ids"}}), true, where,
                     binding);
      return binding;
    case RowFormat::text:
      binding.columns = {named("text")};
      break;
    case RowFormat::input_ids:
      binding.columns = {named("input_ids")};
      if (names.contains("labels") || has(columns, "labels")) binding.columns.push_back(named("labels"));
      break;
  }
  const ColumnKind kind = binding.format == RowFormat::input_ids ? ColumnKind::ids : ColumnKind::text;
  for (const std::string& column : binding.columns) check_column(columns, column, kind, where);
  return binding;
}

ColumnBinding bind_to_score(std::span<const Column> columns, const Names& names, bool rewards,
                            const std::string& where) {
  ColumnBinding binding;
  binding.format = rewards ? RowFormat::preference : RowFormat::sentence_label;
  if (!rewards)
    bind_sentences(columns, with_ready_ids(columns, names, {{"sentence", "input_ids"}}), false, where,
                   binding);
  else if (names.contains("chosen") || has(columns, "chosen") || has(columns, "chosen_input_ids"))
    bind_preference(columns, names, where, binding);
  else
    bind_answer(columns, names, where, binding);
  return binding;
}

const nlohmann::ordered_json& part_of(const Row& row, const std::vector<std::string>& parts,
                                      std::string_view part) {
  static const nlohmann::ordered_json kNone = nullptr;
  const auto at = std::find(parts.begin(), parts.end(), part);
  return at == parts.end() ? kNone : row[static_cast<size_t>(at - parts.begin())].json;
}

}  // namespace plimsoll
