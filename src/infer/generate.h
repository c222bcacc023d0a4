// `plimsoll generate`: answers of a model folder or a finished run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "infer/answer_file.h"
#include "infer/answerer.h"

namespace plimsoll {

struct GenerateOptions : AnswerOptions {
  // The prompts to answer, exactly one of them: a text, a file with one ("-": standard input), token ids, or
  // a data file's rows.
  std::optional<std::string> prompt;
  std::optional<std::filesystem::path> prompt_file;
  std::vector<int32_t> ids;
  std::optional<std::filesystem::path> data;  // column prompt (and response), or messages
  std::vector<std::string> sets;  // keys of the recipe that say how rows are read: "data.columns=..."
  std::optional<int64_t> limit;   // rows of `data`
  std::optional<std::filesystem::path> out;  // JSONL of the answers
};

struct Generated {
  // The tally of all rows of `data`, or of the one prompt and its answer.
  std::optional<AnswerTally> rows;
  Question question;
  Answer answer;
  std::string device;  // "the CPU", "NVIDIA H200"
};

// Plans, refuses with DoesNotFitError before weights are read, answers. `show` gets the one answer's text as
// it grows.
Generated generate(const GenerateOptions& options, const Answerer::Show& show = {});

}  // namespace plimsoll
