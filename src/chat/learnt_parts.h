// Finds the assistant's parts in the text of a conversation, for templates that do not mark them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "chat/chat_template.h"

namespace plimsoll {

// A message of the role assistant, unless its "weight" is 0.
bool is_learnt(const nlohmann::ordered_json& message);

using RenderConversation = std::function<std::string(const Conversation&, bool add_generation_prompt)>;

// An answer begins where the conversation before it, rendered with the prompt for an answer, ends (before a
// first message that is an answer, where its content comes out, if the template renders no empty
// conversation); it ends where the conversation up to it does. Both must be beginnings of the whole text.
// Templates that show an earlier answer in another way than the last one (Qwen3 leaves its thoughts out)
// break the second; then a mark is put behind each content and the end is where the mark comes out, provided
// that it changes nothing else. Throws TemplateError, with `name`, where neither works: nothing is guessed.
TrainingText find_learnt_parts(const Conversation& conversation, const RenderConversation& render,
                               const std::string& name);

// The contents of the assistant's messages as the template prints them, without anything around them. Throws
// TemplateError where a content does not come out in one place.
TrainingText find_contents(const Conversation& conversation, const RenderConversation& render,
                           const std::string& name);

// The blocks that the template marked, without those of messages that are not trained. Throws TemplateError
// where there is not one block for each assistant message and some messages are not trained.
std::vector<ByteSpan> learnt_blocks(const Conversation& conversation, std::vector<ByteSpan> blocks,
                                    const std::string& name);

}  // namespace plimsoll
