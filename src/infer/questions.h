// The prompts for a model: a text, ids, or the rows of a data file.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "chat/conversation.h"
#include "data/encode/cut.h"
#include "infer/answerer.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {

struct GenerateOptions;

struct Question {
  std::string prompt;              // of a conversation the last message of the user
  Conversation conversation = {};  // up to the answer
  std::vector<int32_t> ids = {};
  std::optional<std::string> expected = std::nullopt;
  nlohmann::ordered_json calls = nullptr;  // the expected answer where it calls tools, as a message
  std::string where = {};                  // where it comes from, for messages
};

// The rules by which texts become what the model reads.
struct Asking {
  const Tokenizer* tokenizer = nullptr;  // null: only ids are asked for
  const ChatTemplate* chat = nullptr;    // null: prompts are put as they are
  // The token that a source ends with, for an encoder.
  std::optional<int32_t> end_of_source = std::nullopt;
  std::vector<int32_t> ends = {};  // tokens that end an answer
  CutRule cut = {};                // of such sources, where they are rows
  int64_t reading = kReading;      // the rules of reading (tasks/rows.h)
};

// The prompt, the ids, or the data file's rows; texts are encoded as in training.
std::vector<Question> read_questions(const GenerateOptions& options, const Asking& asking);
// The rows of a recipe's data, sources cut to its longest. Throws UsageError for rows that are no questions.
std::vector<Question> read_questions(DataSource& source, const RowSubset& rows, const AnswerOptions& options,
                                     const Asking& asking);

// The first `limit` of some of a data set's `total` rows, or all of them.
RowSubset first_rows(const RowSubset& rows, int64_t total, std::optional<int64_t> limit);

}  // namespace plimsoll
