#include "data/encode/answers.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "data/encode/dialogue.h"
#include "data/encode/ids.h"
#include "data/files/cell.h"
#include "files/json.h"

namespace plimsoll {
namespace {

std::string role_key(const ColumnBinding& columns) {
  return columns.message_role.empty() ? "role" : columns.message_role;
}
std::string content_key(const ColumnBinding& columns) {
  return columns.message_content.empty() ? "content" : columns.message_content;
}

}  // namespace

nlohmann::ordered_json AnswerEncoder::message(const char* role, const nlohmann::ordered_json& content) const {
  return {{role_key(rules_.columns), role}, {content_key(rules_.columns), content}};
}

bool begins_with_question(const nlohmann::ordered_json& answer) {
  if (!answer.is_array() || answer.size() < 2 || !answer[0].is_object()) return false;
  const std::string role = answer[0].value("role", answer[0].value("from", ""));
  return role == "user" || role == "human" || role == "system";
}

MessageNames AnswerEncoder::names() const {
  return {rules_.columns.message_role, rules_.columns.message_content, rules_.reading > kFirstReading};
}

namespace {

// A text that stands for the last message of the conversation that is its other answer.
bool ends_another(const nlohmann::ordered_json& answer, const nlohmann::ordered_json& other) {
  return answer.is_string() && begins_with_question(other);
}

nlohmann::ordered_json with_last(nlohmann::ordered_json conversation, nlohmann::ordered_json last) {
  conversation.back() = std::move(last);
  return conversation;
}

}  // namespace

nlohmann::ordered_json AnswerEncoder::prompt(const Row& row, const Where& where) const {
  const nlohmann::ordered_json question = this->question(row, where);
  const nlohmann::ordered_json& system = cell(row, "system");
  const auto turns = read_turns(cell(row, "history"), where);
  if (!system.is_null() && !system.is_string())
    throw DamagedError(
        formatted("{}: 'system' is {}, a string is expected.", where(), describe_kind(system)));
  if ((system.is_null() || system == "") && turns.empty()) return question;
  if (rules_.converse == nullptr)
    throw UsageError(where() +
                     ": has a system message or a history, which need a chat template: the model folder has "
                     "none, or data.template is plain.");
  if (question.is_null() || (question.is_array() && !turns.empty()))
    throw DamagedError(
        formatted("{}: has a {} next to {}.", where(), turns.empty() ? "system message" : "history",
                  question.is_null() ? "no prompt" : "a prompt that is a conversation already"));
  return behind_context(system, turns, question);
}

bool AnswerEncoder::is_system(const nlohmann::ordered_json& message) const {
  if (!message.is_object()) return false;
  const std::string& named = rules_.columns.message_role;
  const auto role = message.find(!named.empty() ? named : message.contains("role") ? "role" : "from");
  return role != message.end() && *role == "system";
}

nlohmann::ordered_json AnswerEncoder::behind_context(
    const nlohmann::ordered_json& system, const std::vector<std::pair<std::string, std::string>>& turns,
    const nlohmann::ordered_json& question) const {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  const bool has_own = question.is_array() && !question.empty() && is_system(question.front());
  if (!system.is_null() && system != "" && !has_own) messages.push_back(message("system", system));
  for (const auto& [before, after] : turns) {
    messages.push_back(message("user", before));
    messages.push_back(message("assistant", after));
  }
  if (question.is_array())
    messages.insert(messages.end(), question.begin(), question.end());
  else
    messages.push_back(message("user", question));
  return messages;
}

nlohmann::ordered_json AnswerEncoder::question(const Row& row, const Where& where) const {
  nlohmann::ordered_json prompt = cell(row, "prompt");
  const nlohmann::ordered_json& input = cell(row, "input");
  if (input.is_null() || input == "") return prompt;
  if (!input.is_string() || !(prompt.is_string() || prompt.is_null()))
    throw DamagedError(formatted("{}: 'input' is {} next to a prompt that is {}, texts are expected.",
                                 where(), describe_kind(input), describe_kind(prompt)));
  const std::string before = prompt.is_null() ? "" : prompt.get<std::string>();
  return before + (before.empty() ? "" : "\n") + input.get<std::string>();
}

nlohmann::ordered_json AnswerEncoder::answer(const Row& row, const char* part, const Where& where) const {
  const ColumnBinding& columns = rules_.columns;
  nlohmann::ordered_json answer = cell(row, part);
  if (ends_another(answer, part == std::string_view("rejected") ? cell(row, "chosen") : answer))
    return with_last(cell(row, "chosen"), message("assistant", answer));
  if (!columns.dialogues || rules_.converse == nullptr || answer.is_null()) return answer;
  if (!holds_dialogue(answer))
    throw DamagedError(formatted(
        "{}: '{}' is no dialogue that begins with \"\\n\\nHuman:\", as the first row's is.", where(), part));
  return dialogue_messages(answer.get_ref<const std::string&>(), role_key(columns), content_key(columns));
}

void AnswerEncoder::encode(const Row& row, const nlohmann::ordered_json& prompt,
                           const nlohmann::ordered_json& answer, const Where& where, Example& one) const {
  if (rules_.columns.ready) return encode_ready(prompt, answer, where, one);
  const bool question = rules_.converse != nullptr && (prompt.is_string() || prompt.is_array());
  if (answer.is_string() && question) return encode(row, prompt, message("assistant", answer), where, one);
  if (answer.is_string()) {
    if (!prompt.is_null() && !prompt.is_string())
      throw DamagedError(where() +
                         ": the prompt is a list of messages and the answer a text; both are one or "
                         "the other.");
    const std::string before = prompt.is_null() ? "" : prompt.get<std::string>();
    return encode_text(rules_.texts, false, {}, before + answer.get_ref<const std::string&>(), one);
  }
  if (answer.is_object()) return encode(row, prompt, nlohmann::ordered_json::array({answer}), where, one);
  encode_messages(row, prompt, answer, where, one);
}

void AnswerEncoder::encode_ready(const nlohmann::ordered_json& prompt, const nlohmann::ordered_json& answer,
                                 const Where& where, Example& one) const {
  if (!prompt.is_null()) one.ids = ready_ids(prompt, rules_.vocab_size, where);
  const std::vector<int32_t> ids = ready_ids(answer, rules_.vocab_size, where);
  one.ids.insert(one.ids.end(), ids.begin(), ids.end());
}

void AnswerEncoder::encode_messages(const Row& row, const nlohmann::ordered_json& prompt,
                                    const nlohmann::ordered_json& answer, const Where& where,
                                    Example& one) const {
  if (!answer.is_array())
    throw DamagedError(formatted("{}: an answer is {}, a text or a list of messages is expected.", where(),
                                 describe_kind(answer)));
  if (rules_.converse == nullptr)
    throw UsageError(where() +
                     ": has messages, which need a chat template: the model folder has none, or "
                     "data.template is plain.");
  nlohmann::ordered_json messages = prompt.is_array() ? prompt : nlohmann::ordered_json::array();
  if (prompt.is_string()) messages.push_back(message("user", prompt));
  const size_t prompt_messages = messages.size();
  messages.insert(messages.end(), answer.begin(), answer.end());
  rules_.converse(read(messages, cell(row, "tools"), prompt_messages, where), where, one);
}

Conversation AnswerEncoder::read(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                 size_t prompt_messages, const Where& where) const {
  Conversation conversation = read_conversation(messages, tools, where, names());
  if (rules_.reading == kFirstReading) return conversation;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    nlohmann::ordered_json& message = conversation.messages[i];
    const bool said_apart = i >= prompt_messages && learnt_by_itself(message) == false;
    if (said_apart && message["role"] == "assistant" && rules_.marks_count)
      throw UsageError(formatted(
          "{}: message {} is marked as not trained, but task: dpo scores whole answers", where(), i + 1));
    for (const char* key : {"weight", "loss", "train", "training"}) message.erase(key);
  }
  return conversation;
}

}  // namespace plimsoll
