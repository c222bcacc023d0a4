// What `plimsoll generate` is asked, and by which model.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "template/chat_template.h"
#include "text/tokenizer.h"
#include "train/generate.h"

namespace plimsoll {

// The folders that make up a model, found from one of them.
struct ModelPaths {
  std::filesystem::path base;
  std::optional<std::filesystem::path> adapter;
};
// A folder with adapter_config.json names its base model there, relative to the working directory or to the
// folder. Throws UsageError where there is none.
ModelPaths find_model(const std::filesystem::path& folder,
                      const std::optional<std::filesystem::path>& adapter);

// Element type of the folder's weights as config.json gives it: bf16, or f32 for all others.
DType stored_type(const std::filesystem::path& base);

// The ids that end an answer. Without a tokenizer: eos_token_id of generation_config.json, else of
// config.json.
std::vector<int32_t> stop_ids(const std::filesystem::path& base, const Tokenizer* tokenizer);

// What questions are rendered with. `auto`: what a finished run was trained with, or the chat template of the
// adapter or the model; nothing where there is none, and for `plain`. Throws UsageError for an unknown name.
std::optional<ChatTemplate> answering_template(const GenerateOptions& options, const ModelPaths& paths);

struct Question {
  std::string prompt;              // of a conversation the last message of the user
  Conversation conversation = {};  // up to the answer
  std::vector<int32_t> ids;
  std::optional<std::string> expected;
};

// The prompt, the ids, or the data file's rows; texts are encoded as in training. `tokenizer` may be null for
// ids, `chat` for plain prompts.
std::vector<Question> read_questions(const GenerateOptions& options, const Tokenizer* tokenizer,
                                     const ChatTemplate* chat);

}  // namespace plimsoll
