// Rows of conversations as data sets hold them, brought into the form that chat templates know.
#pragma once

#include <functional>
#include <string>

#include "template/chat_template.h"

namespace plimsoll {

// `messages` is a list in OpenAI's form ({"role", "content", ...}) or ShareGPT's ({"from", "value"}; human,
// gpt, system, tool), or the JSON text of one; `tools` a list of schemas, the JSON text of one, or null.
// Further keys of a message are kept: templates read them. Throws DamagedError that starts with where().
Conversation read_conversation(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                               const std::function<std::string()>& where);

// A question and its answer as a conversation.
Conversation conversation_of(const std::string& prompt, const std::string& response);

}  // namespace plimsoll
