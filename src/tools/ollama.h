// The Modelfile that Ollama reads with a GGUF: the template, in Go's template language, and the stops.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"

namespace plimsoll {

// A chat template as constant texts around the messages of a conversation in which user and assistant take
// turns, perhaps behind a system message.
struct TurnTemplate {
  std::string start;         // before the first message of the user, without a system message
  std::string start_system;  // before the system message
  std::string after_system;  // between it and the user's
  std::string to_answer;     // behind a message of the user
  std::string answer_start;  // behind that, before an answer that is there already
  std::string to_next;       // behind an answer, before the next message of the user
  bool takes_system = false;

  // The text that a conversation becomes, up to where the answer begins.
  struct Message {
    std::string role, content;
  };
  [[nodiscard]] std::string render(const std::vector<Message>& messages) const;
  // The same in Go's language, as Ollama's TEMPLATE has it.
  [[nodiscard]] std::string in_go() const;
};

// Finds these texts by what the template makes of a few conversations, and whether it is such a template:
// others of them must become the same text. `begin`: what the tokenizer puts before every text, which is left
// out. Nothing where it is another one; `why` says which.
struct TurnsFound {
  std::optional<TurnTemplate> turns;
  std::string why;
};
TurnsFound find_turns(const ChatTemplate& chat, const std::string& begin);

struct ModelfileFacts {
  std::string file = "model.gguf";
  std::optional<std::string> go_template;  // none: Ollama reads the file's own template
  std::vector<std::string> stops;
  int64_t context = 0;
};
// Throws UsageError for a template or a stop that a Modelfile cannot hold.
std::string modelfile_text(const ModelfileFacts& facts);
// The stops and the template of such a text.
ModelfileFacts read_modelfile(const std::string& text);

}  // namespace plimsoll
