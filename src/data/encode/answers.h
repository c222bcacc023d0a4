// Answers of preferences with their prompts: two texts, two lists of messages, or ready ids.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "data/encode/messages.h"
#include "data/encode/row_encoder.h"

namespace plimsoll {

struct AnswerRules {
  ColumnBinding columns;
  TextRules texts;
  EncodeConversation converse;  // none: messages have no template
  int64_t vocab_size = 0;       // of ready ids
  int64_t reading = kReading;
  bool marks_count = false;  // an answer that is marked as not trained is refused
};

// An answer that is a whole conversation: a prompt adds nothing to it.
bool begins_with_question(const nlohmann::ordered_json& answer);

class AnswerEncoder {
 public:
  explicit AnswerEncoder(AnswerRules rules) : rules_(std::move(rules)) {}

  [[nodiscard]] const nlohmann::ordered_json& cell(const Row& row, std::string_view part) const {
    return part_of(row, rules_.columns.parts, part);
  }
  // The prompt, null where the rows have none: the question, or, where a system message or earlier turns have columns of
  // their own, all of them as messages.
  [[nodiscard]] nlohmann::ordered_json prompt(const Row& row, const Where& where) const;
  // The cell of an answer; a dialogue as messages, where a template renders it.
  [[nodiscard]] nlohmann::ordered_json answer(const Row& row, const char* part, const Where& where) const;
  // A prompt of the row, which may be null, with its answer, and the row's tools. Sets `labels` where a template renders
  // the answer: those that training on the conversation would have.
  void encode(const Row& row, const nlohmann::ordered_json& prompt, const nlohmann::ordered_json& answer,
              const Where& where, Example& one) const;
  // A message of the role, with the keys that the rows' messages have.
  [[nodiscard]] nlohmann::ordered_json message(const char* role, const nlohmann::ordered_json& content) const;
  // The keys of messages, as read_conversation() wants them.
  [[nodiscard]] MessageNames names() const;

 private:
  // The cell of a prompt, behind which Alpaca's input stands on a line of its own.
  [[nodiscard]] nlohmann::ordered_json question(const Row& row, const Where& where) const;
  [[nodiscard]] bool is_system(const nlohmann::ordered_json& message) const;
  [[nodiscard]] nlohmann::ordered_json behind_context(
      const nlohmann::ordered_json& system, const std::vector<std::pair<std::string, std::string>>& turns,
      const nlohmann::ordered_json& question) const;
  void encode_ready(const nlohmann::ordered_json& prompt, const nlohmann::ordered_json& answer,
                    const Where& where, Example& one) const;
  void encode_messages(const Row& row, const nlohmann::ordered_json& prompt,
                       const nlohmann::ordered_json& answer, const Where& where, Example& one) const;
  // The conversation of a pair's answer. For pairs it is ignored which messages are marked for training.
  [[nodiscard]] Conversation read(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                                  size_t prompt_messages, const Where& where) const;

  AnswerRules rules_;
};

}  // namespace plimsoll
