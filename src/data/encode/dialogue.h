// Dialogues in one text, as Anthropic's HH has them: "\n\nHuman: Hello.\n\nAssistant: Hello! ...".
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace plimsoll {

// Begins with a question of that form, and has an answer.
bool is_dialogue(std::string_view text);
// Likewise, of a cell of any kind.
bool holds_dialogue(const nlohmann::ordered_json& cell);

// Its turns, without the blanks around them: a list of messages whose keys are `role` and `content`.
nlohmann::ordered_json dialogue_messages(std::string_view text, const std::string& role,
                                         const std::string& content);

// Bytes that two dialogues share up to the end of the last "\n\nAssistant:" before they part; 0 where they
// share none.
size_t shared_dialogue(std::string_view a, std::string_view b);

}  // namespace plimsoll
