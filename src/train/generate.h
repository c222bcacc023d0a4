// `plimsoll generate`: answers of a model folder or a finished run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "train/sampling.h"
#include "train/setup.h"

namespace plimsoll {

struct GenerateOptions {
  std::filesystem::path folder;                  // a model, or an adapter that names its base model
  std::optional<std::filesystem::path> adapter;  // over the model in `folder`
  // What to answer, exactly one of them: a text, token ids, or a data file's rows.
  std::optional<std::string> prompt;
  std::vector<int32_t> ids;
  std::optional<std::filesystem::path> data;  // column prompt (and response), or messages
  std::string chat_template = "auto";         // auto, plain, or a built-in one's name
  std::optional<std::string> system;          // a system message before the prompt
  std::optional<int64_t> limit;               // rows of `data`
  std::optional<std::filesystem::path> out;   // JSONL of the answers to `data`
  int64_t max_new_tokens = 64;
  std::optional<int64_t> context;  // tokens of prompt and answer; none: what the longest prompt needs
  std::optional<DType> precision;  // none: bf16 where config.json says so, else f32
  SamplingOptions sampling;
  MachineOptions machine;
  bool json = false;
};

// Plans, refuses with DoesNotFitError before weights are read, answers, prints to standard output.
ExitCode generate(const GenerateOptions& options);

}  // namespace plimsoll
