#include "data/encode/messages.h"

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "chat/conversation.h"
#include "data/files/cell.h"
#include "data/rows/columns.h"
#include "files/json.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;

// ShareGPT's names of those who speak.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kSpeakers = {
    {{"human", "user"},
     {"user", "user"},
     {"gpt", "assistant"},
     {"assistant", "assistant"},
     {"chatgpt", "assistant"},
     {"system", "system"},
     {"tool", "tool"},
     {"observation", "tool"},
     {"function_response", "tool"}}};

ordered_json parsed(const ordered_json& value, const char* what, const Where& where) {
  if (!value.is_string()) return value;
  return parse_ordered_json(value.get_ref<const std::string&>(), formatted("{}: {}", where(), what),
                            {.max_values = kMostRowValues});
}

// A message under the usual names; `role` and `content` are those that it has.
ordered_json renamed(const ordered_json& message, const MessageNames& names) {
  ordered_json out = ordered_json::object();
  for (const auto& [key, value] : message.items())
    out[key == names.role ? "from" : key == names.content ? "value" : key] = value;
  return out;
}

// LLaMA-Factory's turns of `function_call` (0.9.5, data/formatter.py: FunctionFormatter): the text is a call
// in JSON, or a list of calls, which the assistant makes.
ordered_json calls_of(const ordered_json& message, const std::string& here) {
  const auto value = message.find("value");
  ordered_json listed =
      parsed(value == message.end() ? ordered_json() : *value, "the call", [&] { return here; });
  if (!listed.is_array()) listed = ordered_json::array({std::move(listed)});
  ordered_json calls = ordered_json::array();
  for (ordered_json& call : listed) {
    if (!call.is_object() || !call.contains("name") || !call.contains("arguments"))
      throw DamagedError(here + ": a call is an object with 'name' and 'arguments', or a list of them.");
    ordered_json function = ordered_json::object();  // moved part by part: a copy would take as much again
    function["name"] = std::move(call["name"]);
    function["arguments"] = std::move(call["arguments"]);
    calls.push_back({{"type", "function"}});
    calls.back()["function"] = std::move(function);
  }
  ordered_json out = {{"role", "assistant"}};
  out["tool_calls"] = std::move(calls);
  for (const auto& [key, other] : message.items())
    if (key != "from" && key != "value") out[key] = other;
  return out;
}

ordered_json from_sharegpt(const ordered_json& message, const std::string& here) {
  const auto from = message.find("from");
  if (!from->is_string())
    throw DamagedError(formatted("{}: 'from' is {}, not a string.", here, describe_kind(*from)));
  const auto speaker = from->get<std::string>();
  if (speaker == "function_call") return calls_of(message, here);
  for (const auto& [name, role] : kSpeakers) {
    if (name != speaker) continue;
    ordered_json out = {{"role", role}};
    for (const auto& [key, value] : message.items())
      if (key != "from") out[key == "value" ? "content" : key] = value;
    return out;
  }
  throw DamagedError(
      formatted("{}: 'from' is '{}'; human, gpt, system, function_call, tool and observation are known.",
                here, speaker.substr(0, 40)));
}

// Content in parts, as programs that also read images have it: its texts, one behind the other.
ordered_json joined_parts(const ordered_json& parts, const std::string& here) {
  std::string text;
  for (const ordered_json& part : parts) {
    if (part.is_string()) {
      text += part.get_ref<const std::string&>();
      continue;
    }
    const auto type = part.is_object() ? part.find("type") : part.end();
    const auto words = part.is_object() ? part.find("text") : part.end();
    const bool other = part.is_object() && type != part.end() && !type->is_null() && *type != "text";
    if (other && type->is_string())
      throw OtherThanText(
          formatted("{}: 'content' has a part of the type {}; conversations here are of text alone.", here,
                    type->get<std::string>().substr(0, 40)));
    if (other || !part.is_object() || words == part.end() || !words->is_string())
      throw DamagedError(
          formatted("{}: 'content' has a part that is no text; conversations here are of text alone.", here));
    text += words->get_ref<const std::string&>();
  }
  return text;
}

void check_message(const ordered_json& message, const std::string& here) {
  const auto role = message.find("role");
  if (role == message.end()) throw DamagedError(here + ": has neither 'role' nor 'from'.");
  if (!role->is_string() || role->get_ref<const std::string&>().empty())
    throw DamagedError(formatted("{}: 'role' is {}, a string is expected.", here, describe_kind(*role)));
  const auto content = message.find("content");
  const bool absent = content == message.end() || content->is_null();
  if (!absent && !content->is_string() && !content->is_array())
    throw DamagedError(
        formatted("{}: 'content' is {}, a string is expected.", here, describe_kind(*content)));
  if (absent && !message.contains("tool_calls") && !message.contains("function_call"))
    throw DamagedError(here + ": has no 'content'.");
  const auto weight = message.find("weight");
  if (weight == message.end()) return;
  const bool known = weight->is_number() && (weight->get<double>() == 0.0 || weight->get<double>() == 1.0);
  if (!known) throw DamagedError(here + ": 'weight' is neither 0 nor 1.");
}

// Keys by which data sets mark a turn for training or not, in addition to OpenAI's "weight".
constexpr std::array<const char*, 3> kLearnt = {"loss", "train", "training"};
// Other keys that mark turns in ways of their own.
constexpr std::array<const char*, 8> kOtherMasks = {"train_detail", "training_detail", "mask",
                                                    "masked",       "loss_mask",       "loss_weight",
                                                    "loss_scale",   "trainable"};

std::optional<bool> flag_of(const ordered_json& value) {
  if (value.is_boolean()) return value.get<bool>();
  const double number = value.is_number() ? value.get<double>() : -1.0;
  if (number == 0.0 || number == 1.0) return number == 1.0;
  return std::nullopt;
}

// "loss": false of an answer becomes "weight": 0, which is read where trained parts are found.
void take_masks(ordered_json& message, const std::string& here) {
  for (const char* key : kOtherMasks)
    if (const auto mask = message.find(key); mask != message.end() && !mask->is_null())
      throw UsageError(formatted(
          "{}: has '{}', an unknown key that may mark what is trained. Write \"loss\": false in an answer "
          "that is not to be trained, or leave the key out",
          here, key));
  bool masked = false, learnt = false;
  for (const char* key : kLearnt) {
    const auto said = message.find(key);
    if (said == message.end() || said->is_null()) continue;
    const auto flag = flag_of(*said);
    if (!flag)
      throw DamagedError(formatted("{}: '{}' is {}, not true or false.", here, key, describe_kind(*said)));
    (*flag ? learnt : masked) = true;
  }
  if (masked && learnt) throw DamagedError(here + ": is marked both as trained and as not trained.");
  if (masked && message["role"] == "assistant") message["weight"] = 0;
}

}  // namespace

std::optional<bool> learnt_by_itself(const ordered_json& message) {
  const auto weight = message.find("weight");
  if (weight != message.end() && weight->is_number() && weight->get<double>() == 0.0) return false;
  for (const char* key : kLearnt)
    if (const auto said = message.find(key); said != message.end())
      if (const auto flag = flag_of(*said)) return flag;
  return std::nullopt;
}

Conversation read_conversation(const ordered_json& messages, const ordered_json& tools, const Where& where,
                               const MessageNames& names) {
  Conversation conversation;
  const ordered_json read = messages.is_string() ? parsed(messages, "messages", where) : ordered_json();
  const ordered_json& list = messages.is_string() ? read : messages;
  if (!list.is_array())
    throw DamagedError(
        formatted("{}: the messages are {}, a list is expected.", where(), describe_kind(list)));
  if (list.empty()) throw DamagedError(where() + ": has no messages.");
  for (const ordered_json& message : list) {
    const std::string here = formatted("{}: message {}", where(), conversation.messages.size() + 1);
    if (!message.is_object())
      throw DamagedError(formatted("{} is {}, not an object.", here, describe_kind(message)));
    const bool has_names = !names.role.empty() || !names.content.empty();
    if (has_names && !(message.contains(names.role) && message.contains(names.content)))
      throw DamagedError(
          formatted("{}: has no '{}'.", here, message.contains(names.role) ? names.content : names.role));
    ordered_json usual = has_names ? renamed(message, names) : message;
    const bool sharegpt = usual.contains("from") && (has_names || !usual.contains("role"));
    conversation.messages.push_back(sharegpt ? from_sharegpt(usual, here) : std::move(usual));
    ordered_json& added = conversation.messages.back();
    check_message(added, here);
    if (names.masks) take_masks(added, here);
    if (const auto content = added.find("content"); content != added.end() && content->is_array())
      *content = joined_parts(*content, here);
  }
  conversation.tools = parsed(tools, "tools", where);
  if (conversation.tools.is_array() && conversation.tools.empty()) conversation.tools = nullptr;
  if (!conversation.tools.is_null() && !conversation.tools.is_array())
    throw DamagedError(
        formatted("{}: the tools are {}, a list is expected.", where(), describe_kind(conversation.tools)));
  return conversation;
}

namespace {

// The text of a cell; what is absent is empty.
std::string text_of_cell(const ordered_json& cell, const std::string& part, const Where& where) {
  if (cell.is_null()) return "";
  if (!cell.is_string())
    throw DamagedError(
        formatted("{}: '{}' is {}, a string is expected.", where(), part, describe_kind(cell)));
  return cell.get<std::string>();
}

ordered_json question_of(const std::string& instruction, const std::string& input) {
  const std::string between = instruction.empty() || input.empty() ? "" : "\n";
  return {{"role", "user"},
          {"content", instruction + between + input},
          {"instruction", instruction},
          {"input", input}};
}

bool begins_with_system(const ordered_json& messages) {
  return !messages.empty() && messages.front().value("role", ordered_json()) == "system";
}

}  // namespace

Conversation read_messages(const Row& row, const std::vector<std::string>& parts, const Where& where,
                           const MessageNames& names) {
  Conversation conversation =
      read_conversation(part_of(row, parts, "messages"), part_of(row, parts, "tools"), where, names);
  const std::string system = text_of_cell(part_of(row, parts, "system"), "system", where);
  if (!system.empty() && !begins_with_system(conversation.messages))
    conversation.messages.insert(conversation.messages.begin(),
                                 ordered_json{{"role", "system"}, {"content", system}});
  return conversation;
}

std::vector<std::pair<std::string, std::string>> read_turns(const ordered_json& cell, const Where& where) {
  const ordered_json history = parsed(cell, "history", where);
  std::vector<std::pair<std::string, std::string>> turns;
  if (history.is_null()) return turns;
  for (const ordered_json& turn : history) {
    const bool is_pair = turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
    if (!is_pair)
      throw DamagedError(formatted("{}: 'history' is {}, pairs of a question and an answer are expected.",
                                   where(), describe_kind(turn)));
    turns.emplace_back(turn[0].get<std::string>(), turn[1].get<std::string>());
  }
  return turns;
}

Conversation read_alpaca(const Row& row, const std::vector<std::string>& parts, int64_t reading,
                         const Where& where) {
  constexpr int64_t kNullIsDamaged = 3;
  std::map<std::string, std::string> texts;
  Conversation conversation;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == "output" && reading >= kNullIsDamaged && row[i].json.is_null())
      throw DamagedError(where() + ": 'output' is null, a string is expected.");
    if (parts[i] == "history")
      for (auto& [question, answer] : read_turns(row[i].json, where)) {
        conversation.messages.push_back({{"role", "user"}, {"content", std::move(question)}});
        conversation.messages.push_back({{"role", "assistant"}, {"content", std::move(answer)}});
      }
    else
      texts[parts[i]] = text_of_cell(row[i].json, parts[i], where);
  }
  if (!texts["system"].empty())
    conversation.messages.insert(conversation.messages.begin(),
                                 ordered_json{{"role", "system"}, {"content", texts["system"]}});
  conversation.messages.push_back(question_of(texts["instruction"], texts["input"]));
  conversation.messages.push_back({{"role", "assistant"}, {"content", texts["output"]}});
  return conversation;
}

Conversation conversation_of(const std::string& prompt, const std::string& response) {
  return {ordered_json::array(
              {{{"role", "user"}, {"content", prompt}}, {{"role", "assistant"}, {"content", response}}}),
          nullptr};
}

}  // namespace plimsoll
