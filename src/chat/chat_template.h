// A model's chat template: renders conversations as text and finds the parts of it that the assistant says.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_texts.h"
#include "chat/template_rules.h"
#include "jinja/template.h"

namespace plimsoll {

struct Conversation;  // chat/conversation.h

// The text of a whole conversation, with the parts that are trained.
struct TrainingText {
  std::string text;
  // In order and apart, one for each assistant message that is trained, or for each generation block. With
  // `to_end` false they end where the message's content does: the end token behind it belongs to them, too.
  std::vector<ByteSpan> learnt;
  bool to_end = true;
};

class ChatTemplate {
 public:
  // `tokens` are the special tokens by their names in templates: bos_token, eos_token, ...
  ChatTemplate(Template rendering, std::optional<Template> with_tools,
               std::map<std::string, std::string> tokens, std::optional<std::tm> now);

  // A template by its name in builtin_templates.h. Throws UsageError for another name, and where the name
  // means the folder's own template and it has none. `source`: a text in Jinja or the path of a file, instead
  // of the folder's own template. `texts`: files of the folder that are read already; nullptr: none.
  static ChatTemplate builtin(std::string_view name, const std::filesystem::path& model_folder,
                              std::optional<std::tm> now,
                              const std::optional<std::string>& source = std::nullopt,
                              FileTexts* texts = nullptr);
  // chat_template.jinja, else chat_template of tokenizer_config.json; nothing where the folder has none.
  // Throws TemplateError, and DamagedError for a file that is not what its name says.
  static std::optional<ChatTemplate> of_folder(const std::filesystem::path& model_folder,
                                               std::optional<std::tm> now,
                                               const std::optional<std::string>& source = std::nullopt,
                                               FileTexts* texts = nullptr);

  // Without the marks of pieces. Throws TemplateError.
  [[nodiscard]] std::string render(const Conversation& conversation, bool add_generation_prompt) const;
  // Throws TemplateError also where the parts cannot be distinguished.
  [[nodiscard]] TrainingText render_for_training(const Conversation& conversation) const;

  [[nodiscard]] const TemplateRules& rules() const { return rules_; }
  // The text that ends a text, where it is not the folder's.
  void end_texts_with(const std::string& text) { tokens_["eos_token"] = text; }
  // Sets what the tokenizer puts before a text: `text_start` in templates of other tools, whose texts are cut
  // at `text_cut`.
  void begin_texts_with(const std::string& text);
  // Sets `enable_thinking`, by which templates of models that think begin an answer with a thought or an empty one.
  // Throws UsageError if the template does not read it.
  void enable_thinking(bool thinks);
  // Arguments of tools' calls that are texts stay texts, as data of before were rendered.
  void keep_argument_texts() { arguments_ = Arguments::as_given; }
  // Returns true if it, or the template for conversations with tools, reads such a key of a message at all.
  [[nodiscard]] bool mentions(std::string_view key) const;
  // Likewise of the one that renders the conversation.
  [[nodiscard]] bool mentions(std::string_view key, const Conversation& conversation) const;
  // As others read it: without the marks of pieces.
  [[nodiscard]] Template published() const;

 private:
  // The form in which tool arguments that are the text of an object are passed: a template that prints texts
  // as they are gets the text, one that prints objects as JSON gets the object.
  enum class Arguments : uint8_t { as_given, objects };

  [[nodiscard]] const Template& template_of(const Conversation& conversation) const;
  [[nodiscard]] Template::Output output(const Conversation& conversation, bool add_generation_prompt) const;
  [[nodiscard]] Arguments wanted_arguments() const;

  Template template_;
  std::optional<Template> with_tools_;
  std::map<std::string, std::string> tokens_;
  std::optional<std::tm> now_;
  TemplateRules rules_;
  Arguments arguments_ = Arguments::as_given;
  std::optional<bool> thinks_;  // none: as the template has it
};

}  // namespace plimsoll
