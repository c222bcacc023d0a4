#include "train/questions.h"

#include <algorithm>

#include "base/error.h"
#include "data/columns.h"
#include "data/dataset.h"
#include "data/messages.h"
#include "io/model_folder.h"
#include "recipe/load.h"
#include "text/special_tokens.h"
#include "text/utf8.h"
#include "train/conversations.h"

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
    throw UsageError(dataset.name() + ": column '" + name + "' is " + column.type + ", not text");
}

Question question_of(const Row& cells) {
  Question question{cells[0].text, {}, {}, std::nullopt};
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
    messages.erase(messages.size() - 1);
  }
  for (const auto& message : messages)
    if (message["role"] == "user") question.prompt = text_of(message);
  question.conversation = std::move(conversation);
  return question;
}

// What is read of a data file: the column prompt, and response where there is one, or else conversations.
ColumnBinding columns_of(const Dataset& dataset) {
  const bool messages = has_column(dataset, "messages") || has_column(dataset, "conversations");
  if (!has_column(dataset, "prompt") && messages)
    return bind_columns(dataset.columns(), RowFormat::messages, {}, dataset.name());
  ColumnBinding binding{RowFormat::prompt_response, {"prompt"}};
  if (has_column(dataset, "response")) binding.columns.emplace_back("response");
  for (const std::string& column : binding.columns) require_text(dataset, column);
  return binding;
}

std::vector<Question> read_rows(const fs::path& file, std::optional<int64_t> limit) {
  Dataset dataset = Dataset::open(std::span(&file, 1));
  const ColumnBinding binding = columns_of(dataset);
  const bool messages = binding.format == RowFormat::messages;
  dataset.select(binding.columns, binding.read_as());
  const int64_t rows = std::min(dataset.rows(), limit.value_or(dataset.rows()));
  std::vector<Question> questions;
  Row cells;
  for (size_t unit = 0; unit < dataset.units().size(); ++unit) {
    const PlacedUnit placed = dataset.units()[unit];
    if (placed.first_row >= rows) break;
    dataset.hold(std::span(&unit, 1));
    for (int64_t row = placed.first_row; row < std::min(rows, placed.first_row + placed.rows); ++row) {
      dataset.read(row, cells);
      const auto where = [&] { return dataset.where(row); };
      questions.push_back(messages ? question_of(read_conversation(
                                         cells[0].json, cells.size() > 1 ? cells[1].json : nullptr, where))
                                   : question_of(cells));
    }
  }
  return questions;
}

Conversation asked(const Question& question, const GenerateOptions& options) {
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

}  // namespace

ModelPaths find_model(const fs::path& folder, const std::optional<fs::path>& adapter) {
  if (!fs::is_directory(folder)) throw UsageError(folder.string() + ": no such folder");
  if (!fs::exists(folder / "adapter_config.json")) return {folder, adapter};
  if (adapter)
    throw UsageError("--adapter: " + folder.string() + " is an adapter itself; name its base model");
  const nlohmann::json config = read_config(folder, "adapter_config.json");
  const auto base = config.find("base_model_name_or_path");
  if (base != config.end() && base->is_string()) {
    const fs::path named = base->get<std::string>();
    for (const fs::path& candidate : {named, folder / named})
      if (fs::exists(candidate / "config.json")) return {candidate, folder};
  }
  throw UsageError((folder / "adapter_config.json").string() +
                   ": base_model_name_or_path names no model folder here; use plimsoll generate MODEL "
                   "--adapter " +
                   folder.string());
}

DType stored_type(const fs::path& base) {
  const nlohmann::json config = read_config(base);
  for (const char* key : {"dtype", "torch_dtype"})
    if (const auto found = config.find(key); found != config.end() && *found == "bfloat16")
      return DType::bf16;
  return DType::f32;
}

std::vector<int32_t> stop_ids(const fs::path& base, const Tokenizer* tokenizer) {
  if (tokenizer != nullptr) return read_special_tokens(base, *tokenizer).eos;
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (!fs::exists(base / name)) continue;
    const nlohmann::json config = read_config(base, name);
    const auto eos = config.find("eos_token_id");
    if (eos == config.end() || eos->is_null()) continue;
    if (eos->is_number_integer()) return {eos->get<int32_t>()};
    const bool ids = eos->is_array() && std::all_of(eos->begin(), eos->end(),
                                                    [](const auto& id) { return id.is_number_integer(); });
    if (!ids) throw DamagedError((base / name).string() + ": eos_token_id is no id: " + eos->dump());
    return eos->get<std::vector<int32_t>>();
  }
  return {};
}

std::optional<ChatTemplate> answering_template(const GenerateOptions& options, const ModelPaths& paths) {
  const std::string& name = options.chat_template;
  std::optional<std::tm> now = local_time();
  const bool of_run = fs::exists(options.folder / "recipe.yaml");
  if (of_run) {
    const auto trained = date_of(load_recipe((options.folder / "recipe.yaml").string()).recipe.data.date);
    if (trained) now = trained;
  }
  if (name == "plain") return std::nullopt;
  if (name != "auto") return ChatTemplate::builtin(name, paths.base, now);
  // A run's folder has the file where its rows were rendered, and only then.
  if (of_run)
    return fs::exists(options.folder / "chat_template.jinja") ? ChatTemplate::of_folder(options.folder, now)
                                                              : std::nullopt;
  if (paths.adapter)
    if (auto own = ChatTemplate::of_folder(*paths.adapter, now)) return own;
  return ChatTemplate::of_folder(paths.base, now);
}

std::vector<Question> read_questions(const GenerateOptions& options, const Tokenizer* tokenizer,
                                     const ChatTemplate* chat) {
  if (!options.ids.empty()) return {{"", {}, options.ids, std::nullopt}};
  check_internal(tokenizer != nullptr, "texts without a tokenizer");
  std::vector<Question> questions;
  if (options.prompt)
    questions.push_back({replace_invalid_utf8(*options.prompt), {}, {}, std::nullopt});
  else
    questions = read_rows(*options.data, options.limit);
  for (Question& question : questions) {
    const std::string where =
        options.data ? options.data->string() + ", row " + std::to_string(&question - questions.data() + 1)
                     : std::string("--prompt");
    if (chat == nullptr && (!question.conversation.messages.empty() || options.system))
      throw UsageError(
          where +
          ": messages with roles need a chat template, and the model has none; name one by --template");
    try {
      const std::string text =
          chat != nullptr ? chat->render(asked(question, options), true) : question.prompt;
      tokenizer->encode_into(text, false, question.ids);
    } catch (const TemplateError& error) {
      throw UsageError(where + ": " + error.what());
    }
    if (question.ids.empty())
      throw UsageError(where + ": the prompt is empty; generation starts from at least one token");
  }
  return questions;
}

}  // namespace plimsoll
