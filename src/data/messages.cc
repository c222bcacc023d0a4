#include "data/messages.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "io/json.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;
using Where = std::function<std::string()>;

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
  return parse_ordered_json(value.get_ref<const std::string&>(), where() + ": " + what);
}

ordered_json from_sharegpt(const ordered_json& message, const std::string& here) {
  const auto from = message.find("from");
  if (!from->is_string())
    throw DamagedError(here + ": 'from' is " + describe_kind(*from) + ", not a string.");
  const auto speaker = from->get<std::string>();
  for (const auto& [name, role] : kSpeakers) {
    if (name != speaker) continue;
    ordered_json out = {{"role", role}};
    for (const auto& [key, value] : message.items())
      if (key != "from") out[key == "value" ? "content" : key] = value;
    return out;
  }
  throw DamagedError(here + ": 'from' is '" + speaker.substr(0, 40) +
                     "'; human, gpt, system, tool and observation are known.");
}

void check_message(const ordered_json& message, const std::string& here) {
  const auto role = message.find("role");
  if (role == message.end()) throw DamagedError(here + ": has neither 'role' nor 'from'.");
  if (!role->is_string() || role->get_ref<const std::string&>().empty())
    throw DamagedError(here + ": 'role' is " + describe_kind(*role) + ", a string is expected.");
  const auto content = message.find("content");
  const bool absent = content == message.end() || content->is_null();
  if (!absent && !content->is_string() && !content->is_array())
    throw DamagedError(here + ": 'content' is " + describe_kind(*content) + ", a string is expected.");
  if (absent && !message.contains("tool_calls") && !message.contains("function_call"))
    throw DamagedError(here + ": has no 'content'.");
  const auto weight = message.find("weight");
  if (weight == message.end()) return;
  const bool known = weight->is_number() && (weight->get<double>() == 0.0 || weight->get<double>() == 1.0);
  if (!known) throw DamagedError(here + ": 'weight' is neither 0 nor 1.");
}

}  // namespace

Conversation read_conversation(const ordered_json& messages, const ordered_json& tools, const Where& where) {
  Conversation conversation;
  const ordered_json list = parsed(messages, "messages", where);
  if (!list.is_array())
    throw DamagedError(where() + ": the messages are " + describe_kind(list) + ", a list is expected.");
  if (list.empty()) throw DamagedError(where() + ": has no messages.");
  for (const ordered_json& message : list) {
    const std::string here = where() + ": message " + std::to_string(conversation.messages.size() + 1);
    if (!message.is_object()) throw DamagedError(here + " is " + describe_kind(message) + ", not an object.");
    conversation.messages.push_back(
        message.contains("from") && !message.contains("role") ? from_sharegpt(message, here) : message);
    check_message(conversation.messages.back(), here);
  }
  conversation.tools = parsed(tools, "tools", where);
  if (conversation.tools.is_array() && conversation.tools.empty()) conversation.tools = nullptr;
  if (!conversation.tools.is_null() && !conversation.tools.is_array())
    throw DamagedError(where() + ": the tools are " + describe_kind(conversation.tools) +
                       ", a list is expected.");
  return conversation;
}

Conversation conversation_of(const std::string& prompt, const std::string& response) {
  return {ordered_json::array(
              {{{"role", "user"}, {"content", prompt}}, {{"role", "assistant"}, {"content", response}}}),
          nullptr};
}

}  // namespace plimsoll
