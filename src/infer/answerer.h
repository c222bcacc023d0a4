// A model that answers prompts, shared by `generate`, `chat` and `eval`.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_template.h"
#include "infer/generator.h"
#include "infer/sampling.h"
#include "prepare/model_paths.h"
#include "prepare/setup.h"
#include "runs/observer.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {

struct AnswerOptions {
  std::filesystem::path folder;                  // a model, or an adapter that names its base model
  std::optional<std::filesystem::path> adapter;  // over the model in `folder`
  std::string chat_template = "auto";            // auto, plain, or a built-in one's name
  std::optional<std::string> system;             // a system message before the prompt
  std::optional<bool> thinking;                  // enable_thinking; none: as the template has it
  int64_t max_new_tokens = 64;
  std::vector<std::string> stops;  // texts that end an answer; they are not part of it
  std::optional<int64_t> context;  // tokens of prompt and answer; none: what the longest prompt needs
  std::optional<DType> precision;  // none: as it was trained, else as it is stored
  SamplingOptions sampling;
  BeamOptions beams;
  MachineOptions machine;
  std::optional<std::string> device;  // cpu, cuda, cuda:1, emulated; none: the run's, else the CPU
  std::optional<UseGraphs> graphs;    // of a card; none: as the run says
  bool go_on = false;                 // prompts mostly begin as the one before did: Generator::generate
  RunObserver* observer = &nobody();  // outlives what it is told by
  // Sources of recipes and of the model: each file is read once.
  SharedSources sources = std::make_shared<RecipeSources>();
};

// The reason why an answer ended: an end token of the model, a text of `stops`, max_new_tokens, the context,
// or an interruption by the reader.
enum class AnswerEnd : uint8_t { end_token, stop, length, context, interrupted };
std::string_view to_string(AnswerEnd end);

struct Answer {
  std::vector<int32_t> ids;  // without an end token; with the tokens of a stop's text
  std::string text;
  AnswerEnd end = AnswerEnd::length;
  std::optional<double> score = {};  // Hypothesis::score, of a search
  std::vector<Answer> next = {};     // of a search the next best ones, as many as were asked for
};

// Chooses the device of inference: that of the options, or of `sets`, keys of the recipe as --set gives them
// ("device=cuda"), or of the run in the folder, or next to the adapter. Call it before any thread is started.
InferenceDevice inference_device(const AnswerOptions& options, const ModelPaths& paths,
                                 std::span<const std::string> sets = {});

// Chooses the chat template for prompts. `auto`: that of a finished run's training, or of the adapter or the
// model; nothing where there is none, and for `plain`. Throws UsageError for an unknown name.
std::optional<ChatTemplate> answering_template(const AnswerOptions& options, const ModelPaths& paths);
// Begins answers as options.thinking says. Throws UsageError without a template, or if it does not read that.
void set_thinking(const AnswerOptions& options, std::optional<ChatTemplate>& chat);

// The tokenizer of a model folder. Throws UsageError where there is none.
std::shared_ptr<const Tokenizer> model_tokenizer(const std::filesystem::path& base, ModelFiles& files);

// A cache for prompts of at most `longest` tokens and their answers, as options.context and the model's
// positions allow; for an encoder, of prompts alone. Throws UsageError for a context that the model does not
// have.
int64_t answering_context(const AnswerOptions& options, const ModelSpec& model, int64_t longest);

// The tokens that end an answer: the model's, and the template's end of a turn.
std::vector<int32_t> end_tokens_of(const std::filesystem::path& base, const Tokenizer* tokenizer,
                                   const ChatTemplate* chat, ModelFiles& files);

// Refuses a chat template for an encoder, which knows no conversation. `command`: for the message.
void refuse_template(const AnswerOptions& options, const std::string& command);
// The token that ends a source, as training ends them. Throws UsageError where the model names none.
std::optional<int32_t> end_of_source(const std::filesystem::path& base, ModelFiles& files);

class Answerer {
 public:
  // Plans, refuses with DoesNotFitError before anything is mapped, reports the plan, maps, loads. `tokenizer`
  // may be null where only ids are asked for.
  Answerer(const AnswerOptions& options, const ModelPaths& paths, const InferenceDevice& device,
           const Tokenizer* tokenizer, const ChatTemplate* chat, int64_t longest_prompt);

  // Gets the text as it grows, whole characters at a time and once for every token; false ends the answer.
  using Show = std::function<bool(std::string_view text)>;
  // The same seed, prompt and `index` give the same answer; with go_on also the same questions before it.
  // That of a search is shown at once.
  Answer answer(std::span<const int32_t> prompt, int64_t index, const Show& show = {});
  // Tokens that an encoder reads at most; 0: the model has none, and reads and writes in its context.
  [[nodiscard]] int64_t source() const { return generator_->plan().request.source; }
  [[nodiscard]] int64_t context() const { return generator_->plan().request.context; }

 private:
  Answer searched(std::span<const int32_t> prompt, const Show& show);
  [[nodiscard]] Answer answer_of(Hypothesis found) const;
  [[nodiscard]] bool ends_answers(int32_t id) const;

  AnswerOptions options_;
  std::optional<Tokenizer> tokenizer_;
  std::vector<int32_t> end_tokens_;
  Sampler sampler_;
  std::unique_ptr<Generator> generator_;
};

}  // namespace plimsoll
