// Brings rows of conversations, as data sets hold them, into the form that chat templates know.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "chat/chat_template.h"
#include "data/files/data_file.h"

namespace plimsoll {

// A row with an image or another part that is no text. Left out with data.on_error: skip; else the user's choice of
// rows is wrong, not the file (exit 2).
struct OtherThanText : DamagedError {
  using DamagedError::DamagedError;
};

// `messages` is a list in OpenAI's form ({"role", "content", ...}) or ShareGPT's ({"from", "value"}; human,
// gpt, system, tool), or the JSON text of one; `tools` a list of schemas, the JSON text of one, or null.
// Further keys of a message are kept: templates read them. `names`, where not empty, are the keys that hold a
// message's role and content. An answer that is not to be trained on, by "weight": 0, or "loss", "train" or
// "training": false, has the weight 0. Throws DamagedError that starts with where(), and UsageError for keys
// that may mask in a way that is not known.
struct MessageNames {
  std::string role, content;
  bool masks = true;  // whether marks of messages for training are read
};
Conversation read_conversation(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                               const Where& where, const MessageNames& names = {});

// The conversation of a row, whose cells are the `parts` of rows of messages (columns.h). A system message of a column of
// its own stands before those that begin with none, as in LLaMA-Factory (0.9.5: data/converter.py).
Conversation read_messages(const Row& row, const std::vector<std::string>& parts, const Where& where,
                           const MessageNames& names);

// Earlier questions with their answers: [["q", "a"], ...], the JSON text of that, or null.
std::vector<std::pair<std::string, std::string>> read_turns(const nlohmann::ordered_json& cell,
                                                            const Where& where);

// Returns a message's own mark, trained or not. For roles other than the assistant's, "loss" and its like are
// kept as they are.
std::optional<bool> learnt_by_itself(const nlohmann::ordered_json& message);

// A question and its answer as a conversation.
Conversation conversation_of(const std::string& prompt, const std::string& response);

// A question of Alpaca's rows with its answer. `parts` names each cell (columns.h). The question's content is
// instruction and input with a line's end between them; templates that set them apart find both under their
// names. `reading`: data.reading; before its third version an output that is null was an empty answer.
Conversation read_alpaca(const Row& row, const std::vector<std::string>& parts, int64_t reading,
                         const Where& where);

}  // namespace plimsoll
