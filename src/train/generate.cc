#include "train/generate.h"
#include "text/tokenizer.h"

#include <algorithm>

#include "base/units.h"
#include "cpu/threads.h"
#include "train/answer_file.h"

namespace plimsoll {
namespace {

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

Generated generate(const GenerateOptions& options, const Answerer::Show& show) {
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
  Generated result;
  if (options.data) {
    result.rows = answer_all(answerer, questions, options.out, *options.observer);
    return result;
  }
  AnswerFile file(options.out);
  result.question = questions.front();
  result.answer = answerer.answer(result.question.ids, 0, show);
  file.write(result.question, result.answer);
  return result;
}

}  // namespace plimsoll
