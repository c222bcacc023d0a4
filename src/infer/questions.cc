#include "infer/questions.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "chat/conversation.h"
#include "data/encode/conversations.h"
#include "data/encode/messages.h"
#include "data/files/cell.h"
#include "data/rows/columns.h"
#include "data/rows/dataset.h"
#include "files/file.h"
#include "infer/generate.h"
#include "prepare/evaluation_rows.h"
#include "tokenizer/stream_decoder.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

bool has_column(const Dataset& dataset, const std::string& name) {
  return std::any_of(dataset.columns().begin(), dataset.columns().end(),
                     [&](const Column& column) { return column.name == name; });
}

void require_text(const Dataset& dataset, const std::string& name) {
  const Column& column = find_column(dataset.columns(), name, dataset.name());
  if (column.kind != ColumnKind::text)
    throw UsageError(formatted("{}: column '{}' is {}, not text", dataset.name(), name, column.type));
}

Question question_of(const Row& cells) {
  Question question{.prompt = cells[0].text};
  if (cells.size() > 1) question.expected = cells[1].text;
  return question;
}

std::string text_of(const nlohmann::ordered_json& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() ? content->get<std::string>() : "";
}

// The last message, where it is the assistant's, is the expected answer.
Question question_of(Conversation conversation) {
  Question question;
  nlohmann::ordered_json& messages = conversation.messages;
  if (messages.back()["role"] == "assistant") {
    question.expected = text_of(messages.back());
    if (const auto calls = messages.back().find("tool_calls");
        calls != messages.back().end() && !calls->empty())
      question.calls = messages.back();
    messages.erase(messages.size() - 1);
  }
  for (const auto& message : messages)
    if (message["role"] == "user") question.prompt = text_of(message);
  question.conversation = std::move(conversation);
  return question;
}

// A file, "-" being standard input, without the end of its last line, which editors and echo write.
std::string read_prompt(const fs::path& file) {
  constexpr int64_t kMostBytes = 64 * kMiB;
  std::string text;
  if (file == "-") {
    std::array<char, 65536> piece{};
    while (std::cin.read(piece.data(), piece.size()) || std::cin.gcount() > 0) {
      text.append(piece.data(), static_cast<size_t>(std::cin.gcount()));
      if (static_cast<int64_t>(text.size()) > kMostBytes)
        throw UsageError("--prompt-file: standard input has more than " + format_bytes(kMostBytes));
    }
  } else {
    text = read_text(file, kMostBytes);
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

using Names = std::map<std::string, std::string>;

// data.columns: as --set names them, or as the run read its own rows where this file has such columns.
Names names_of(const Dataset& dataset, const GenerateOptions& options, const Names& names) {
  const bool here = std::all_of(names.begin(), names.end(),
                                [&](const auto& name) { return has_column(dataset, name.second); });
  return here || !options.sets.empty() ? names : Names();
}

// Chooses the columns to read of a data file: a prompt, and a response where there is one, or conversations.
ColumnBinding columns_of(const Dataset& dataset, const Names& names) {
  const auto column_of = [&](const std::string& part) {
    return names.contains(part) ? names.at(part) : part;
  };
  if (names.contains("prompt") || has_column(dataset, "prompt")) {
    ColumnBinding binding{RowFormat::prompt_response, {column_of("prompt")}};
    const bool completes = !names.contains("response") && !has_column(dataset, "response");
    const std::string response = completes ? "completion" : column_of("response");
    if (names.contains("response") || has_column(dataset, response)) binding.columns.push_back(response);
    for (const std::string& column : binding.columns) require_text(dataset, column);
    return binding;
  }
  const ColumnBinding binding = bind_columns(dataset.columns(), std::nullopt, names, dataset.name());
  const bool asks = binding.format == RowFormat::prompt_response || binding.format == RowFormat::messages ||
                    binding.format == RowFormat::alpaca;
  if (!asks)
    throw UsageError(formatted(
        "{}: its rows are {}, which have no prompt; name the column with --set data.columns={{prompt: ...}}",
        dataset.name(), to_string(binding.format)));
  return binding;
}

Question read_question(const Row& cells, const ColumnBinding& binding,
                       const std::function<std::string()>& where) {
  if (binding.format == RowFormat::alpaca)
    return question_of(read_alpaca(cells, binding.parts, kFirstReading, where));
  if (binding.format != RowFormat::messages) return question_of(cells);
  return question_of(
      read_messages(cells, binding.parts, where, {binding.message_role, binding.message_content, false}));
}

// Ascending rows of a data set whose columns are selected.
std::vector<Question> read_rows(Dataset& dataset, const RowSubset& rows, const ColumnBinding& binding) {
  std::vector<Question> questions;
  Row cells;
  size_t unit = dataset.units().size();
  for (int64_t i = 0; i < rows.size(); ++i) {
    const int64_t row = rows.row(i);
    const auto holds = [&](size_t u) {
      const PlacedUnit& placed = dataset.units()[u];
      return row >= placed.first_row && row < placed.first_row + placed.rows;
    };
    if (unit == dataset.units().size() || !holds(unit)) {
      unit = 0;
      while (!holds(unit)) ++unit;
      dataset.hold(std::span(&unit, 1));
    }
    dataset.read(row, cells);
    const auto where = [&] { return dataset.where(row); };
    questions.push_back(read_question(cells, binding, where));
    questions.back().where = where();
  }
  return questions;
}

std::vector<Question> read_file(const GenerateOptions& options, const Names& names) {
  const fs::path& file = *options.data;
  Dataset dataset = Dataset::open(std::span(&file, 1));
  const ColumnBinding binding = columns_of(dataset, names_of(dataset, options, names));
  dataset.select(binding.columns, binding.read_as());
  return read_rows(dataset, first_rows(RowSubset::all(dataset.rows()), dataset.rows(), options.limit),
                   binding);
}

Conversation requested(const Question& question, const AnswerOptions& options) {
  Conversation conversation = question.conversation;
  if (conversation.messages.empty())
    conversation.messages.push_back({{"role", "user"}, {"content", question.prompt}});
  if (options.system) {
    const nlohmann::ordered_json system = {{"role", "system"},
                                           {"content", replace_invalid_utf8(*options.system)}};
    conversation.messages.insert(conversation.messages.begin(), system);
  }
  return conversation;
}

// Reports tools that rows have and the template does not print, as training does.
void note_unprinted_tools(const std::vector<Question>& questions, const ChatTemplate& chat,
                          RunObserver& observer) {
  if (chat.mentions("tools")) return;
  const auto first = std::ranges::find_if(
      questions, [](const Question& question) { return !question.conversation.tools.is_null(); });
  if (first == questions.end()) return;
  observer.event(
      formatted("note    {}: has tools, and the chat template prints none, so that the model does not see "
                "them; --template names another one",
                first->where),
      LogLevel::warn);
}

// The answer with its calls of tools as the template prints them: what it adds to the prompt, as answers are read.
std::string expected_calls(Conversation conversation, const Question& question, const std::string& prompt,
                           const Asking& asking) {
  conversation.messages.push_back(question.calls);
  const std::string whole = asking.chat->render(conversation, false);
  const auto apart = std::ranges::mismatch(prompt, whole).in2;
  std::vector<int32_t> ids;
  asking.tokenizer->encode_into(std::string(apart, whole.end()), false, ids);
  const auto end = std::ranges::find_first_of(ids, asking.ends);
  StreamDecoder stream(*asking.tokenizer);
  std::string text;
  for (auto id = ids.begin(); id != end; ++id) text += stream.push(*id);
  return text + stream.finish();
}

}  // namespace

RowSubset first_rows(const RowSubset& rows, int64_t total, std::optional<int64_t> limit) {
  if (!limit || *limit >= rows.size()) return rows;
  std::vector<int64_t> first;
  for (int64_t i = 0; i < *limit; ++i) first.push_back(rows.row(i));
  return RowSubset::only(total, std::move(first));
}

void encode_questions(std::vector<Question>& questions, const AnswerOptions& options, const Asking& asking) {
  const ChatTemplate* chat = asking.chat;
  if (chat != nullptr) note_unprinted_tools(questions, *chat, *options.observer);
  for (Question& question : questions) {
    if (chat == nullptr && (!question.conversation.messages.empty() || options.system))
      throw UsageError(
          question.where +
          ": messages with roles need a chat template, and the model has none; name one with --template");
    if (chat != nullptr)
      require_printed_calls(question.conversation, *chat, asking.reading, [&] { return question.where; });
    try {
      const Conversation conversation = chat != nullptr ? requested(question, options) : Conversation();
      const std::string text = chat != nullptr ? chat->render(conversation, true) : question.prompt;
      asking.tokenizer->encode_into(text, false, question.ids);
      if (chat != nullptr && !question.calls.is_null() && chat->mentions("tool_calls", conversation))
        question.expected = expected_calls(conversation, question, text, asking);
    } catch (const TemplateError& error) {
      throw UsageError(formatted("{}: {}", question.where, error.what()));
    }
    if (question.ids.empty())
      throw UsageError(question.where + ": the prompt is empty; it needs at least one token");
    if (asking.end_of_source) question.ids.push_back(*asking.end_of_source);
  }
}

std::vector<Question> read_questions(const GenerateOptions& options, const Asking& asking) {
  if (!options.ids.empty()) return {{.prompt = "", .ids = options.ids, .where = "--ids"}};
  check_internal(asking.tokenizer != nullptr, "texts without a tokenizer");
  std::vector<Question> questions;
  Asking by_rules = asking;
  if (options.prompt) {
    questions.push_back({.prompt = replace_invalid_utf8(*options.prompt), .where = "--prompt"});
  } else if (options.prompt_file) {
    questions.push_back({.prompt = replace_invalid_utf8(read_prompt(*options.prompt_file)),
                         .where = options.prompt_file->string()});
  } else {
    const RunReading reading = reading_of_run(options.folder, options.sets, options.sources);
    questions = read_file(options, reading.columns);
    by_rules.reading = reading.rules;
  }
  encode_questions(questions, options, by_rules);
  return questions;
}

std::vector<Question> read_questions(DataSource& source, const RowSubset& rows, const AnswerOptions& options,
                                     const Asking& asking) {
  const RowFormat format = source.reading.columns.format;
  const bool asks =
      format == RowFormat::prompt_response || format == RowFormat::messages || format == RowFormat::alpaca;
  if (!asks)
    throw UsageError(formatted("{}: its rows are {}, which have no prompt and answer", source.dataset.name(),
                               to_string(format)));
  std::vector<Question> questions = read_rows(source.dataset, rows, source.reading.columns);
  Asking by_rules = asking;
  by_rules.reading = source.reading.requested.rules;
  encode_questions(questions, options, by_rules);
  if (asking.end_of_source)
    for (Question& question : questions)
      cut_text(asking.cut.max_length, asking.cut.truncation, true, question.ids);
  return questions;
}

}  // namespace plimsoll
