#include "infer/generate.h"
#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "base/units.h"
#include "cpu/threads.h"
#include "infer/answer_file.h"

namespace plimsoll {
namespace {

void check(const GenerateOptions& options) {
  const int given = (options.prompt ? 1 : 0) + (options.prompt_file ? 1 : 0) + (options.data ? 1 : 0) +
                    (options.ids.empty() ? 0 : 1);
  if (given != 1) throw UsageError("generate: give one of --prompt, --prompt-file, --data and --ids");
  if (!options.ids.empty() && (options.system || options.thinking || options.chat_template != "auto"))
    throw UsageError("generate: --template, --system and --thinking have no effect with --ids");
  if (!options.ids.empty() && !options.stops.empty())
    throw UsageError("generate: --stop is a text and cannot be used with --ids");
  if (!options.data && !options.sets.empty())
    throw UsageError("generate: --set describes the rows of --data; add --data");
  if (!options.data && options.limit) throw UsageError("generate: --limit needs --data");
}

}  // namespace

Generated generate(const GenerateOptions& options, const Answerer::Show& show) {
  check(options);
  const ModelPaths paths = find_model(options.folder, options.adapter);
  std::vector<std::filesystem::path> read = {options.folder, paths.base};
  for (const auto& path : {paths.adapter, options.data, options.prompt_file})
    if (path) read.push_back(*path);
  require_apart(options.out, read);
  const InferenceDevice device = inference_device(options, paths, options.sets);
  ModelFiles& files = *options.sources->models;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  if (options.ids.empty() || Tokenizer::find_file(paths.base)) tokenizer = model_tokenizer(paths.base, files);
  const bool encodes = files.spec(paths.base).encoder_decoder.has_value();
  if (encodes) refuse_template(options, "generate");
  if (options.ids.empty() && !encodes) chat = answering_template(options, paths);
  const Asking asking{tokenizer.get(), chat ? &*chat : nullptr,
                      encodes && tokenizer ? end_of_source(paths.base, files) : std::nullopt,
                      end_tokens_of(paths.base, tokenizer.get(), chat ? &*chat : nullptr, files)};
  const std::vector<Question> questions = read_questions(options, asking);
  size_t longest = 0;
  for (const Question& question : questions) longest = std::max(longest, question.ids.size());
  start_threads(device.cpu.threads);
  Answerer answerer(options, paths, device, asking.tokenizer, asking.chat, static_cast<int64_t>(longest));
  Generated result;
  result.device = name_of(device);
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
