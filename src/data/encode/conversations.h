// Turns conversations into token ids and labels, by a chat template, a tokenizer and the parts of the text
// that are trained.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "data/encode/example.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {

// Names the template of rows, as data.template, data.template_source and data.date of a recipe do.
struct TemplateChoice {
  std::filesystem::path model;
  std::string name = "auto";
  std::optional<std::string> source = {};  // Jinja, or the path of a file of it
  std::optional<std::string> date = {};    // of templates that print one: YYYY-MM-DD
  FileTexts* texts = nullptr;              // files of the model that are read already; null: none
};
// The template that rows of conversations are rendered with: the named one, or with `auto` the model folder's
// own; nothing for plain prompts and responses. Throws UsageError for messages without a template.
std::optional<ChatTemplate> chat_template_of(const TemplateChoice& choice, RowFormat format);

// The date that templates print as today: as given (YYYY-MM-DD), or nothing.
std::optional<std::tm> date_of(const std::optional<std::string>& date);
// The local time now.
std::tm local_time();

// The places in `text`, of which `ids` were made, at which each of its tokens begins, and the end of the
// text. Nothing where the tokens do not spell the text but for blanks (a normaliser changed it).
std::optional<std::vector<size_t>> token_starts(const Tokenizer& tokenizer, std::string_view text,
                                                const std::vector<int32_t>& ids);

// Marks the tokens of the text that are trained: those that overlap its trained parts, the end token behind
// each included. Tokens that follow an end token within a part (a line's end) are not.
std::vector<bool> learnt_tokens(const Tokenizer& tokenizer, const TrainingText& rendered,
                                const std::vector<int32_t>& ids);

struct ConversationOptions {
  bool train_on_prompt = false;
  int64_t max_length = 1024;                          // for templates that cut in a way of their own
  int32_t eos = 0;                                    // the end-of-text token
  std::optional<int32_t> end_of_turn = std::nullopt;  // another one that is trained, after contents
  int64_t reading = kReading;                         // the rules of reading (tasks/rows.h)
};
// Throws DamagedError where the template does not print calls of tools that the conversation has: one instead of a content would
// be read as "None", and one next to a text as if the answer ended with the text. `reading`: the rules (tasks/rows.h).
void require_printed_calls(const Conversation& conversation, const ChatTemplate& chat, int64_t reading,
                           const Where& where);

EncodeConversation conversation_encoder(std::shared_ptr<const Tokenizer> tokenizer, ChatTemplate chat,
                                        const ConversationOptions& options);

// Sets what the tokenizer puts before a text, for templates of pieces.
void begin_texts(const Tokenizer& tokenizer, std::optional<int32_t> eos, ChatTemplate& chat);
// The tokens that the tokenizer puts before a text.
std::vector<int32_t> text_start(const Tokenizer& tokenizer, std::optional<int32_t> eos);

// The token that ends the assistant's turns, where the template has one: answers stop there.
std::optional<int32_t> end_of_turn(const Tokenizer& tokenizer, const ChatTemplate& chat);

}  // namespace plimsoll
