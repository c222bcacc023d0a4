// A conversation as a chat template renders it: messages and tools.
#pragma once

#include <nlohmann/json.hpp>

namespace plimsoll {

// As transformers passes it to a template: objects with a role and, mostly, a content.
struct Conversation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools = nullptr;  // a list of schemas
};

}  // namespace plimsoll
