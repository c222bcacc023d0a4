#include "data/encode/example.h"

#include <algorithm>

#include "base/error.h"
#include "chat/conversation.h"
#include "data/encode/messages.h"
#include "data/files/cell.h"
#include "data/rows/labels.h"
#include "files/json.h"
#include "unicode/text_error.h"

namespace plimsoll {
namespace {

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

// A list of ids that the file holds.
std::vector<int32_t> ready_ids(const nlohmann::ordered_json& list, int64_t vocab_size,
                               const std::function<std::string()>& where) {
  std::vector<int32_t> ids;
  const auto known = [&](const nlohmann::ordered_json& id) {
    return id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < vocab_size;
  };
  if (!list.is_array())
    throw DamagedError(where() + ": is " + describe_kind(list) + ", token ids are expected.");
  for (const nlohmann::ordered_json& id : list) {
    if (!known(id))
      throw DamagedError(where() + ": holds the token id " + id.dump().substr(0, 40) +
                         ", the model has the ids 0 to " + std::to_string(vocab_size - 1) + ".");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

const nlohmann::ordered_json& part_of(const Row& row, const std::vector<std::string>& parts,
                                      std::string_view part) {
  static const nlohmann::ordered_json kNone = nullptr;
  const auto at = std::find(parts.begin(), parts.end(), part);
  return at == parts.end() ? kNone : row[static_cast<size_t>(at - parts.begin())].json;
}

int64_t Example::longest() const {
  int64_t longest = 0;
  for (int64_t i = 0; i < sequences(); ++i)
    longest = std::max(longest, end_of(i) - (i == 0 ? 0 : end_of(i - 1)));
  return longest;
}

void append_source(const std::vector<int32_t>& ids, Example& example) {
  example.ids.insert(example.ids.end(), ids.begin(), ids.end());
  example.labels.resize(example.ids.size(), kIgnoreLabel);
  example.ends.push_back(static_cast<int64_t>(example.ids.size()));
}

void append_target(const std::vector<int32_t>& ids, const DecoderTokens& tokens, Example& example) {
  example.ids.push_back(tokens.start);
  example.labels.push_back(kIgnoreLabel);
  for (const int32_t id : ids) {
    example.ids.push_back(id == kIgnoreLabel ? tokens.pad : id);
    example.labels.push_back(id);
    if (id != kIgnoreLabel) ++example.targets;
  }
  example.ends.push_back(static_cast<int64_t>(example.ids.size()));
}

ExampleEncoder::ExampleEncoder(const ExampleOptions& options, Tokenize tokenize, EncodeConversation converse)
    : options_(options), tokenize_(std::move(tokenize)), converse_(std::move(converse)) {
  if (options_.max_length < 2)
    throw UsageError("data.max_length: at least 2 tokens are needed, one to read and one to predict.");
  check_internal(options_.format != RowFormat::messages || converse_ != nullptr, "messages need a template");
  check_internal(options_.format == RowFormat::input_ids || options_.ready || tokenize_ != nullptr,
                 "text needs a tokenizer");
}

void ExampleEncoder::encode(const Row& row, const std::function<std::string()>& where,
                            Example& example) const {
  example.ids.clear();
  example.labels.clear();
  example.damage.clear();
  example.ends.clear();
  example.values.clear();
  example.second = -1;
  example.whole_length = example.targets = 0;
  example.size = row_size(row);
  require_planned(example, where);
  try {
    encode_by_task(row, where, example);
  } catch (const TextError& error) {
    throw DamagedError(where() + ": " + error.what());
  }
  example.size = std::max(example.size, example.whole_length);
  require_planned(example, where);
}

void ExampleEncoder::require_planned(const Example& example,
                                     const std::function<std::string()>& where) const {
  if (longest_row_ == 0 || example.size <= longest_row_) return;
  throw DamagedError(
      where() + ": a row of " + format_bytes(example.size) + " (texts, and " + std::to_string(kValueSize) +
      " bytes for each value of JSON) takes more memory than the plan has for one, which is for " +
      format_bytes(longest_row_) + ". Split it or take it out.");
}

void ExampleEncoder::encode_by_task(const Row& row, const std::function<std::string()>& where,
                                    Example& example) const {
  if (rule_of(options_.task.task).scores) {
    if (options_.format == RowFormat::preference) return encode_pair(row, where, example);
    return encode_labelled(row, where, example);
  }
  if (options_.format == RowFormat::preference) return encode_preference(row, where, example);
  if (options_.task.task == Task::seq2seq) return encode_two(row, where, example);
  encode_row(row, where, example);
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
      converse_(
          read_conversation(row[0].json, row.size() > 1 ? row[1].json : nullptr, where, message_names()),
          where, example);
      break;
    case RowFormat::alpaca: {
      const Conversation conversation = read_alpaca(row, options_.parts, options_.reading, where);
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
    case RowFormat::preference:
    case RowFormat::sentence_label:
      throw InternalError("rows of tasks of pairs, or of scores, are encoded by their own means");
  }
}

void drop_padding(std::optional<int64_t> padding, std::vector<int32_t>& ids) {
  while (padding && ids.size() > 1 && ids.back() == *padding) ids.pop_back();
}

void cut_text(int64_t length, Truncation truncation, bool ends, std::vector<int32_t>& ids) {
  const auto have = static_cast<int64_t>(ids.size());
  if (have <= length) return;
  const int32_t last = ids.back();
  if (truncation == Truncation::left)
    ids.erase(ids.begin(), ids.begin() + (have - length));
  else
    ids.resize(static_cast<size_t>(length));
  if (ends) ids.back() = last;
}

bool ExampleEncoder::fit_text(int64_t length, const char* what, const std::function<std::string()>& where,
                              bool ends, std::vector<int32_t>& ids, Example& example) const {
  const auto have = static_cast<int64_t>(ids.size());
  if (have <= length) return true;
  if (options_.truncation == Truncation::drop) return false;
  if (options_.truncation == Truncation::refuse)
    throw DamagedError(where() + ": its " + what + " has " + std::to_string(have) +
                       " tokens, more than data.max_length: " + std::to_string(length) +
                       ", and data.truncation is refuse.");
  example.whole_length = std::max(example.whole_length, have);
  cut_text(length, options_.truncation, ends, ids);
  return true;
}

// An empty target, and one without a token to train on, leaves the row without targets.
void ExampleEncoder::encode_two(const Row& row, const std::function<std::string()>& where,
                                Example& example) const {
  const bool ready = options_.format == RowFormat::input_ids;
  std::vector<int32_t> source, target;
  if (ready) {
    source = row[0].ids;
    target = row[1].ids;
    require_ready(source, false, where);
    require_ready(target, true, where);
  } else {
    std::string prompt = row[0].text, response = row.size() > 1 ? row[1].text : "";
    if (options_.format == RowFormat::alpaca) {
      const Conversation conversation = read_alpaca(row, options_.parts, options_.reading, where);
      if (conversation.messages.size() > 2)
        throw UsageError(where() +
                         ": has more than a question and its answer, which task: seq2seq has no place for.");
      prompt = conversation.messages[0]["content"].get<std::string>();
      response = conversation.messages[1]["content"].get<std::string>();
    }
    tokenize_(prompt, source);
    source.push_back(options_.eos);
    if (!response.empty()) {
      tokenize_(response, target);
      target.push_back(options_.eos);
    }
    for (const auto* ids : {&source, &target}) require_known_ids(*ids, options_.vocab_size, where);
  }
  if (!fit_text(options_.max_length, "source", where, !ready, source, example) ||
      !fit_text(options_.target_length, "target", where, !ready, target, example) || source.empty() ||
      target.empty())
    return;
  append_source(source, example);
  append_target(target, options_.decoder, example);
  if (!example.truncated()) example.whole_length = example.longest();
}

void ExampleEncoder::encode_answer(const nlohmann::ordered_json& prompt, const nlohmann::ordered_json& answer,
                                   const std::function<std::string()>& where, Example& one) const {
  if (options_.ready) {
    if (!prompt.is_null()) one.ids = ready_ids(prompt, options_.vocab_size, where);
    const std::vector<int32_t> ids = ready_ids(answer, options_.vocab_size, where);
    one.ids.insert(one.ids.end(), ids.begin(), ids.end());
    return;
  }
  const std::string role = options_.message_role.empty() ? "role" : options_.message_role;
  const std::string content = options_.message_content.empty() ? "content" : options_.message_content;
  const bool question = converse_ != nullptr && (prompt.is_string() || prompt.is_array());
  if (answer.is_string() && question)
    return encode_answer(prompt, {{role, "assistant"}, {content, answer}}, where, one);
  if (answer.is_string()) {
    if (!prompt.is_null() && !prompt.is_string())
      throw DamagedError(where() +
                         ": the prompt is a list of messages and the answer a text; both are one or "
                         "the other.");
    const std::string before = prompt.is_null() ? "" : prompt.get<std::string>();
    return encode_text({}, before + answer.get_ref<const std::string&>(), one);
  }
  if (answer.is_object()) return encode_answer(prompt, nlohmann::ordered_json::array({answer}), where, one);
  if (!answer.is_array())
    throw DamagedError(where() + ": an answer is " + describe_kind(answer) +
                       ", a text or a list of messages is expected.");
  if (converse_ == nullptr)
    throw UsageError(where() +
                     ": has messages, which need a chat template: the model folder has none, or "
                     "data.template is plain.");
  nlohmann::ordered_json messages = prompt.is_array() ? prompt : nlohmann::ordered_json::array();
  if (prompt.is_string()) messages.push_back({{role, "user"}, {content, prompt}});
  const size_t prompt_messages = messages.size();
  messages.insert(messages.end(), answer.begin(), answer.end());
  converse_(read_answer(messages, prompt_messages, where), where, one);
}

Conversation ExampleEncoder::read_answer(const nlohmann::ordered_json& messages, size_t prompt_messages,
                                         const std::function<std::string()>& where) const {
  Conversation conversation = read_conversation(messages, nullptr, where, message_names());
  if (options_.reading == kFirstReading) return conversation;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    nlohmann::ordered_json& message = conversation.messages[i];
    const bool said_apart = i >= prompt_messages && learnt_by_itself(message) == false;
    if (said_apart && message["role"] == "assistant" && !rule_of(options_.task.task).scores)
      throw UsageError(where() + ": message " + std::to_string(i + 1) +
                       " is marked as not trained, but task: dpo scores whole answers");
    for (const char* key : {"weight", "loss", "train", "training"}) message.erase(key);
  }
  return conversation;
}

void ExampleEncoder::end_scored(Example& one) const {
  if (!options_.scored_end || one.ids.back() == *options_.scored_end) return;
  if (std::ssize(one.ids) < options_.max_length)
    one.ids.push_back(*options_.scored_end);
  else
    one.ids.back() = *options_.scored_end;
}

bool ExampleEncoder::append(Example one, const std::function<std::string()>& where, Example& example) const {
  require_known_ids(one.ids, options_.vocab_size, where);
  one.whole_length = std::max(one.whole_length, static_cast<int64_t>(one.ids.size()));
  fit(where, one);
  const bool cut = one.truncated();
  drop_padding(options_.padding, one.ids);
  example.whole_length = std::max(example.whole_length, cut ? one.whole_length : std::ssize(one.ids));
  if (one.ids.empty()) return false;
  end_scored(one);
  const bool labelled = one.labels.size() == one.ids.size() && !rule_of(options_.task.task).scores;
  example.ids.insert(example.ids.end(), one.ids.begin(), one.ids.end());
  if (labelled) example.labels.insert(example.labels.end(), one.labels.begin(), one.labels.end());
  example.labels.resize(example.ids.size(), kIgnoreLabel);
  example.ends.push_back(static_cast<int64_t>(example.ids.size()));
  return true;
}

void ExampleEncoder::expect_nothing(Example& example) const {
  example.values.assign(static_cast<size_t>(example.sequences() * targets_of(options_.task)), 0.0F);
  example.targets = 1;
}

// Two answers that are the same, as they are or as they were cut, teach nothing.
void ExampleEncoder::encode_pair(const Row& row, const std::function<std::string()>& where,
                                 Example& example) const {
  const auto cell = [&](const char* part) { return part_of(row, options_.parts, part); };
  for (const char* answer : {"chosen", "rejected"}) {
    const auto& parts = options_.parts;
    if (!options_.learns && std::find(parts.begin(), parts.end(), answer) == parts.end()) continue;
    Example one;
    encode_answer(cell("prompt"), answer_of(row, answer, where), where, one);
    if (append(std::move(one), where, example)) continue;
    example.ids.clear();
    example.labels.clear();
    example.ends.clear();
    return;
  }
  if (!options_.learns) return expect_nothing(example);
  const nlohmann::ordered_json margin = cell("margin");
  if (!margin.is_null() && !margin.is_number())
    throw DamagedError(where() + ": 'margin' is " + describe_kind(margin) + ", a number is expected.");
  example.values = {margin.is_null() ? 0.0F : margin.get<float>(), 0.0F};
  const auto chosen = example.ids.begin(), between = chosen + example.ends[0];
  example.targets = std::equal(chosen, between, between, example.ids.end()) ? 0 : 1;
}

void ExampleEncoder::fit(const std::function<std::string()>& where, Example& example) const {
  if (static_cast<int64_t>(example.ids.size()) <= options_.max_length) return;
  switch (options_.truncation) {
    case Truncation::left:
    case Truncation::right:
      truncate(example.ids);
      truncate(example.labels);
      return;
    case Truncation::drop:
      example.ids.clear();
      example.labels.clear();
      return;
    case Truncation::refuse:
      refuse_long(std::ssize(example.ids), where);
  }
}

void ExampleEncoder::refuse_long(int64_t tokens, const std::function<std::string()>& where) const {
  throw DamagedError(where() + ": has " + std::to_string(tokens) + " tokens, more than data.max_length: " +
                     std::to_string(options_.max_length) + ", and data.truncation is refuse.");
}

void ExampleEncoder::truncate(std::vector<int32_t>& tokens) const {
  const auto excess = static_cast<std::ptrdiff_t>(tokens.size()) - options_.max_length;
  if (excess <= 0) return;  // a text that is scored has no labels
  if (options_.truncation == Truncation::right)
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
  require_ready(example.ids, false, where);
  require_ready(example.labels, true, where);
}

void ExampleEncoder::require_ready(const std::vector<int32_t>& ids, bool labels,
                                   const std::function<std::string()>& where) const {
  for (const int32_t id : ids) {
    if ((id >= 0 && id < options_.vocab_size) || (labels && id == kIgnoreLabel)) continue;
    throw DamagedError(where() + ": holds the " + (labels ? "label " : "token id ") + std::to_string(id) +
                       ", the model has the ids 0 to " + std::to_string(options_.vocab_size - 1) +
                       ". The file was made for another tokenizer.");
  }
}

}  // namespace plimsoll
