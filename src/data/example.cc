#include "data/example.h"

#include <algorithm>

#include "base/error.h"
#include "data/cell.h"
#include "data/messages.h"
#include "template/conversation.h"
#include "text/text_error.h"

namespace plimsoll {
namespace {

int64_t bytes_of(const nlohmann::ordered_json& value) {
  if (value.is_string()) return static_cast<int64_t>(value.get_ref<const std::string&>().size());
  int64_t bytes = static_cast<int64_t>(sizeof value);
  if (value.is_structured())
    for (const auto& part : value) bytes += bytes_of(part);
  return bytes;
}

int64_t bytes_of(const Row& row) {
  int64_t bytes = 0;
  for (const Cell& cell : row)
    bytes += std::ssize(cell.text) + std::ssize(cell.ids) * static_cast<int64_t>(sizeof(int32_t)) +
             bytes_of(cell.json);
  return bytes;
}

// Ids that the tokenizer gave. Not the row's fault: no row can be skipped for it.
void require_known_ids(const std::vector<int32_t>& ids, int64_t vocab_size,
                       const std::function<std::string()>& where) {
  const auto largest = std::max_element(ids.begin(), ids.end());
  if (largest == ids.end() || vocab_size == 0 || *largest < vocab_size) return;
  throw UsageError(where() + ": the tokenizer gives the id " + std::to_string(*largest) +
                   ", the model has the ids 0 to " + std::to_string(vocab_size - 1) +
                   " (vocab_size in config.json). Tokenizer and model do not belong together.");
}

}  // namespace

ExampleEncoder::ExampleEncoder(const ExampleOptions& options, Tokenize tokenize, EncodeConversation converse)
    : options_(options), tokenize_(std::move(tokenize)), converse_(std::move(converse)) {
  if (options_.max_length < 2)
    throw UsageError("data.max_length: at least 2 tokens are needed, one to read and one to predict.");
  check_internal(options_.format != RowFormat::messages || converse_ != nullptr, "messages need a template");
  check_internal(options_.format == RowFormat::input_ids || tokenize_ != nullptr, "text needs a tokenizer");
}

void ExampleEncoder::encode(const Row& row, const std::function<std::string()>& where,
                            Example& example) const {
  example.ids.clear();
  example.labels.clear();
  example.damage.clear();
  example.whole_length = 0;
  example.bytes = bytes_of(row);
  try {
    encode_row(row, where, example);
  } catch (const TextError& error) {
    throw DamagedError(where() + ": " + error.what());
  }
  if (options_.format != RowFormat::input_ids) require_known_ids(example.ids, options_.vocab_size, where);
  example.whole_length = std::max(example.whole_length, static_cast<int64_t>(example.ids.size()));
  fit(where, example);
  const auto ignored = std::count(example.labels.begin(), example.labels.end(), kIgnoreLabel);
  const bool first_counts = !example.labels.empty() && example.labels[0] != kIgnoreLabel;
  example.targets = static_cast<int64_t>(example.labels.size()) - ignored - (first_counts ? 1 : 0);
}

void ExampleEncoder::encode_row(const Row& row, const std::function<std::string()>& where,
                                Example& example) const {
  switch (options_.format) {
    case RowFormat::prompt_response:
      if (converse_)
        converse_(conversation_of(row[0].text, row[1].text), where, example);
      else if (options_.joined)
        encode_joined(row[0].text, row[1].text, example);
      else
        encode_text(row[0].text, row[1].text, example);
      break;
    case RowFormat::messages:
      converse_(read_conversation(row[0].json, row.size() > 1 ? row[1].json : nullptr, where,
                                  {options_.message_role, options_.message_content}),
                where, example);
      break;
    case RowFormat::alpaca: {
      const Conversation conversation = read_alpaca(row, options_.parts, where);
      const auto& messages = conversation.messages;
      if (converse_)
        converse_(conversation, where, example);
      else if (messages.size() > 2)
        throw UsageError(where() +
                         ": has more than a question and its answer, which data.template: plain has no place "
                         "for.");
      else
        encode_text(messages[0]["content"].get_ref<const std::string&>(),
                    messages[1]["content"].get_ref<const std::string&>(), example);
      break;
    }
    case RowFormat::text:
      encode_text({}, row[0].text, example);
      break;
    case RowFormat::input_ids:
      encode_ready_ids(row, where, example);
      break;
  }
}

void ExampleEncoder::fit(const std::function<std::string()>& where, Example& example) const {
  if (static_cast<int64_t>(example.ids.size()) <= options_.max_length) return;
  switch (options_.too_long) {
    case TooLong::lose_left:
    case TooLong::lose_right:
      truncate(example.ids);
      truncate(example.labels);
      return;
    case TooLong::drop:
      example.ids.clear();
      example.labels.clear();
      return;
    case TooLong::refuse:
      throw DamagedError(where() + ": has " + std::to_string(example.ids.size()) +
                         " tokens, more than data.max_length: " + std::to_string(options_.max_length) +
                         ", and data.truncation is refuse.");
  }
}

void ExampleEncoder::truncate(std::vector<int32_t>& tokens) const {
  const auto excess = static_cast<std::ptrdiff_t>(tokens.size()) - options_.max_length;
  if (options_.too_long == TooLong::lose_right)
    tokens.resize(static_cast<size_t>(options_.max_length));
  else
    tokens.erase(tokens.begin(), tokens.begin() + excess);
}

// Prompt and response are tokenised apart: a token across their border would be half prompt, half target, and
// generation, which sees the prompt alone, could never meet it.
void ExampleEncoder::encode_text(std::string_view prompt, std::string_view response, Example& example) const {
  example.ids = options_.begin;
  if (!prompt.empty()) tokenize_(prompt, example.ids);
  if (options_.train_on_prompt)
    example.labels = example.ids;
  else
    example.labels.assign(example.ids.size(), kIgnoreLabel);
  const auto prompt_tokens = static_cast<std::ptrdiff_t>(example.ids.size());
  if (!response.empty()) tokenize_(response, example.ids);
  if (example.ids.empty() || example.ids.back() != options_.eos) example.ids.push_back(options_.eos);
  example.labels.insert(example.labels.end(), example.ids.begin() + prompt_tokens, example.ids.end());
}

void ExampleEncoder::encode_joined(const std::string& prompt, const std::string& response,
                                   Example& example) const {
  std::vector<int32_t> alone = options_.begin;
  tokenize_(prompt, alone);
  example.ids = options_.begin;
  tokenize_(prompt + response, example.ids);
  if (example.ids.empty() || example.ids.back() != options_.eos) example.ids.push_back(options_.eos);
  const auto parting =
      std::mismatch(alone.begin(), alone.end(), example.ids.begin(), example.ids.end()).second;
  example.labels = example.ids;
  if (!options_.train_on_prompt)
    std::fill(example.labels.begin(), example.labels.begin() + (parting - example.ids.begin()), kIgnoreLabel);
}

void ExampleEncoder::encode_ready_ids(const Row& row, const std::function<std::string()>& where,
                                      Example& example) const {
  example.ids = row[0].ids;
  example.labels = row.size() > 1 ? row[1].ids : example.ids;
  if (example.labels.size() != example.ids.size())
    throw DamagedError(where() + ": has " + std::to_string(example.ids.size()) + " input_ids and " +
                       std::to_string(example.labels.size()) +
                       " labels. Give one label per id, -100 for none.");
  for (const std::vector<int32_t>* ids : {&example.ids, &example.labels}) {
    const bool labels = ids == &example.labels;
    for (const int32_t id : *ids) {
      if ((id >= 0 && id < options_.vocab_size) || (labels && id == kIgnoreLabel)) continue;
      throw DamagedError(where() + ": holds the " + (labels ? "label " : "token id ") + std::to_string(id) +
                         ", the model has the ids 0 to " + std::to_string(options_.vocab_size - 1) +
                         ". The file was made for another tokenizer.");
    }
  }
}

}  // namespace plimsoll
