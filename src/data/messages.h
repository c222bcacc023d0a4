// Rows of conversations as data sets hold them, brought into the form that chat templates know.
#pragma once

#include <functional>
#include <string>

#include "data/data_file.h"
#include "template/chat_template.h"

namespace plimsoll {

// `messages` is a list in OpenAI's form ({"role", "content", ...}) or ShareGPT's ({"from", "value"}; human,
// gpt, system, tool), or the JSON text of one; `tools` a list of schemas, the JSON text of one, or null.
// Further keys of a message are kept: templates read them. `names`, where not empty, are the keys that hold a
// message's role and content. Throws DamagedError that starts with where().
struct MessageNames {
  std::string role, content;
};
Conversation read_conversation(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                               const std::function<std::string()>& where, const MessageNames& names = {});

// A question and its answer as a conversation.
Conversation conversation_of(const std::string& prompt, const std::string& response);

// A question of Alpaca's rows with its answer. `parts` says what each cell is (columns.h). The question's
// content is instruction and input with a line's end between them; templates that set them apart find both
// under their names.
Conversation read_alpaca(const Row& row, const std::vector<std::string>& parts,
                         const std::function<std::string()>& where);

}  // namespace plimsoll
