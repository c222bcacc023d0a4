#include "train/generate.h"
#include "base/print.h"
#include "text/tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cpu/threads.h"
#include "train/answer_file.h"

namespace plimsoll {
namespace {

std::string joined(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

void answer_one(Answerer& answerer, const GenerateOptions& options, const Question& question) {
  const bool streams = !options.json && options.ids.empty();
  AnswerFile file(options.out);
  const Answer answer = answerer.answer(question.ids, 0, [&](std::string_view text) {
    if (!streams) return true;
    print(text);
    flush_output();
    return true;
  });
  file.write(question, answer);
  if (streams) {
    print("\n");
  } else if (options.json) {
    const nlohmann::ordered_json json = {{"prompt", question.prompt},
                                         {"prompt_ids", question.ids},
                                         {"response", answer.text},
                                         {"response_ids", answer.ids},
                                         {"ended_by", to_string(answer.end)}};
    print(json_text(json, -1));
  } else {
    print(joined(answer.ids) + "\n");
  }
}

void report(const AnswerTally& tally, bool json) {
  if (json) {
    nlohmann::ordered_json out = {{"rows", tally.rows}, {"tokens", tally.tokens}, {"seconds", tally.seconds}};
    if (tally.expected > 0) out["exact"] = tally.exact;
    print(json_text(out, -1));
    return;
  }
  say("done    " + format_count(tally.rows) + " answers, " + format_count(tally.tokens) + " tokens in " +
      format_seconds(tally.seconds));
  if (tally.expected > 0) print("exact match " + exact_match_text(tally) + "\n");
}

void check(const GenerateOptions& options) {
  const int given = (options.prompt ? 1 : 0) + (options.prompt_file ? 1 : 0) + (options.data ? 1 : 0) +
                    (options.ids.empty() ? 0 : 1);
  if (given != 1) throw UsageError("generate: give one of --prompt, --prompt-file, --data and --ids");
  if (!options.ids.empty() && (options.system || options.chat_template != "auto"))
    throw UsageError("generate: --template and --system mean nothing beside --ids");
  if (!options.ids.empty() && !options.stops.empty())
    throw UsageError("generate: --stop is a text, which --ids has none of");
  if (!options.data && !options.sets.empty())
    throw UsageError("generate: --set says how the rows of --data are read");
  if (!options.data && options.limit) throw UsageError("generate: --limit belongs to --data");
}

}  // namespace

ExitCode generate(const GenerateOptions& options) {
  check(options);
  const ModelPaths paths = find_model(options.folder, options.adapter);
  std::vector<std::filesystem::path> read = {options.folder, paths.base};
  for (const auto& path : {paths.adapter, options.data, options.prompt_file})
    if (path) read.push_back(*path);
  require_apart(options.out, read);
  const CpuSettings cpu = cpu_settings(options.machine);
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  if (options.ids.empty() || Tokenizer::find_file(paths.base)) tokenizer = model_tokenizer(paths.base);
  if (options.ids.empty()) chat = answering_template(options, paths);
  const Tokenizer* texts = tokenizer ? &*tokenizer : nullptr;
  const ChatTemplate* template_or_null = chat ? &*chat : nullptr;
  const std::vector<Question> questions = read_questions(options, texts, template_or_null);
  size_t longest = 0;
  for (const Question& question : questions) longest = std::max(longest, question.ids.size());
  start_threads(cpu.threads);
  Answerer answerer(options, paths, cpu, texts, template_or_null, static_cast<int64_t>(longest));
  if (options.data) {
    report(answer_all(answerer, questions, options.out), options.json);
  } else {
    answer_one(answerer, options, questions.front());
  }
  return ExitCode::ok;
}

}  // namespace plimsoll
