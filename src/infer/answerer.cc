#include "infer/answerer.h"
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "data/encode/conversations.h"
#include "prepare/evaluation_rows.h"
#include "tokenizer/stop_strings.h"
#include "tokenizer/stream_decoder.h"
#include "weights/adapter_config.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// Contexts are rounded up to this, so that prompts of about one length make one plan.
constexpr int64_t kContextStep = 32;

GenerationRequest request_of(const AnswerOptions& options, const ModelPaths& paths, int64_t longest) {
  GenerationRequest request;
  request.model = options.sources->models->spec(paths.base);
  request.compute = options.precision ? *options.precision : trained_type(paths, options.sources);
  if (paths.adapter) read_adapter_config(*paths.adapter, request.lora.emplace());
  request.quantisation = quantisation_of(paths, options.sources);
  request.context = answering_context(options, request.model, longest);
  request.sequences = options.beams.beams;
  if (request.model.encoder_decoder) request.source = std::exchange(request.context, options.max_new_tokens);
  return request;
}

std::string plan_text(const GenerationPlan& plan) {
  const GenerationRequest& request = plan.request;
  std::string text = formatted("plan    device {} · ", format_bytes(plan.plan.device_bytes()));
  if (request.source > 0)
    text +=
        formatted("{} tokens read, {} written", format_count(request.source), format_count(request.context));
  else
    text += formatted("context {} tokens", format_count(request.context));
  if (request.sequences > 1) text += formatted(" · {} beams", format_count(request.sequences));
  return formatted("{} · {}{}{}{}", text, to_string(request.compute),
                   request.quantisation ? formatted(" · {}", to_string(request.quantisation->format)) : "",
                   plan.device.is_card() ? " · " + name_of(plan.device) : "",
                   plan.graphs().bytes > 0 ? " · " + plan.graphs().name : "");
}

}  // namespace

std::string_view to_string(AnswerEnd end) {
  switch (end) {
    case AnswerEnd::end_token:
      return "end_token";
    case AnswerEnd::stop:
      return "stop";
    case AnswerEnd::length:
      return "length";
    case AnswerEnd::context:
      return "context";
    case AnswerEnd::interrupted:
      return "interrupted";
  }
  throw InternalError("to_string: no such end of an answer");
}

InferenceDevice inference_device(const AnswerOptions& options, const ModelPaths& paths,
                                 std::span<const std::string> sets) {
  constexpr std::string_view kKey = "device=";
  std::optional<std::string> named = options.device;
  for (const std::string& set : sets)
    if (!options.device && set.starts_with(kKey)) named = set.substr(kKey.size());
  return inference_device(options.machine, named, paths, options.graphs, options.sources, *options.observer);
}

namespace {

std::optional<ChatTemplate> chosen_template(const AnswerOptions& options, const ModelPaths& paths) {
  const std::string& name = options.chat_template;
  std::optional<std::tm> now = local_time();
  const bool of_run = fs::exists(options.folder / "recipe.yaml");
  if (const auto trained = date_of(date_of_run(options.folder, options.sources))) now = trained;
  if (name == "plain") return std::nullopt;
  FileTexts* const texts = &options.sources->models->texts();
  const auto own_of = [&](const fs::path& folder) {
    return ChatTemplate::of_folder(folder, now, std::nullopt, texts);
  };
  if (name != "auto") return ChatTemplate::builtin(name, paths.base, now, std::nullopt, texts);
  // A run's folder has the file where its rows were rendered, and only then.
  if (of_run)
    return fs::exists(options.folder / "chat_template.jinja") ? own_of(options.folder) : std::nullopt;
  if (paths.adapter)
    if (auto own = own_of(*paths.adapter)) return own;
  return own_of(paths.base);
}

}  // namespace

std::optional<ChatTemplate> answering_template(const AnswerOptions& options, const ModelPaths& paths) {
  std::optional<ChatTemplate> chat = chosen_template(options, paths);
  set_thinking(options, chat);
  return chat;
}

void set_thinking(const AnswerOptions& options, std::optional<ChatTemplate>& chat) {
  if (!options.thinking) return;
  if (!chat)
    throw UsageError("--thinking needs a chat template, and the model has none; name one by --template");
  chat->enable_thinking(*options.thinking);
}

std::shared_ptr<const Tokenizer> model_tokenizer(const fs::path& base, ModelFiles& files) {
  if (auto tokenizer = files.tokenizer(base)) return tokenizer;
  throw UsageError(base.string() +
                   ": has no tokenizer.json or tokenizer.model; texts need one (generate --ids does not)");
}

int64_t answering_context(const AnswerOptions& options, const ModelSpec& model, int64_t longest) {
  const int64_t answer = model.encoder_decoder ? 0 : options.max_new_tokens;
  const int64_t wanted =
      options.context.value_or(round_up(std::max<int64_t>(longest, 1) + answer, kContextStep));
  const std::optional<int64_t> bound = model.longest_text();
  if (!bound) return wanted;
  if (options.context && wanted > *bound) {
    throw UsageError(
        formatted("--context: {} tokens, but the model has {} positions (max_position_embeddings)",
                  format_count(wanted), format_count(*bound)));
  }
  return std::min(wanted, *bound);
}

std::vector<int32_t> end_tokens_of(const fs::path& base, const Tokenizer* tokenizer, const ChatTemplate* chat,
                                   ModelFiles& files) {
  std::vector<int32_t> ids = stop_ids(base, tokenizer != nullptr, files);
  if (chat != nullptr)
    if (const auto end = end_of_turn(*tokenizer, *chat)) ids.push_back(*end);
  return ids;
}

void refuse_template(const AnswerOptions& options, const std::string& command) {
  if (options.system || options.thinking ||
      (options.chat_template != "auto" && options.chat_template != "plain"))
    throw UsageError(
        command +
        ": --template, --system and --thinking have no effect on an encoder, which has no chat template");
}

std::optional<int32_t> end_of_source(const fs::path& base, ModelFiles& files) {
  const std::optional<int32_t> end = files.special_tokens(base).end_of_text;
  if (!end)
    throw UsageError(base.string() + ": names no end-of-text token (eos_token in tokenizer_config.json)");
  return end;
}

Answerer::Answerer(const AnswerOptions& options, const ModelPaths& paths, const InferenceDevice& device,
                   const Tokenizer* tokenizer, const ChatTemplate* chat, int64_t longest_prompt)
    : options_(options),
      end_tokens_(end_tokens_of(paths.base, tokenizer, chat, *options.sources->models)),
      sampler_(options.sampling) {
  if (tokenizer != nullptr) tokenizer_ = *tokenizer;
  GenerationPlan plan = plan_generation(request_of(options, paths, longest_prompt), device);
  require_fit(plan);
  options.observer->event(plan_text(plan));
  generator_ = std::make_unique<Generator>(std::move(plan), *options.observer);
  if (const std::string products = generator_->device().products(); !products.empty())
    options.observer->event("products by " + products);
  load_base_weights(generator_->state(), paths.base,
                    [&](int64_t done, int64_t total) { options.observer->loading(done, total); });
  if (paths.adapter) load_adapters(generator_->state(), *paths.adapter);
}

bool Answerer::ends_answers(int32_t id) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), id) != end_tokens_.end();
}

Answer Answerer::answer_of(Hypothesis found) const {
  Answer answer;
  answer.score = found.score;
  answer.ids = std::move(found.ids);
  if (ends_answers(answer.ids.back())) {
    answer.end = AnswerEnd::end_token;
    answer.ids.pop_back();
  } else if (static_cast<int64_t>(answer.ids.size()) < options_.max_new_tokens) {
    answer.end = AnswerEnd::context;
  }
  if (!tokenizer_) return answer;
  StreamDecoder stream(*tokenizer_);
  for (const int32_t id : answer.ids) answer.text += stream.push(id);
  answer.text += stream.finish();
  return answer;
}

Answer Answerer::searched(std::span<const int32_t> prompt, const Show& show) {
  std::vector<Hypothesis> found =
      generator_->search(prompt, options_.max_new_tokens, options_.beams, end_tokens_);
  if (found.empty()) return {};
  Answer best = answer_of(std::move(found.front()));
  for (size_t i = 1; i < found.size(); ++i) best.next.push_back(answer_of(std::move(found[i])));
  if (show && !best.text.empty() && !show(best.text)) best.end = AnswerEnd::interrupted;
  return best;
}

Answer Answerer::answer(std::span<const int32_t> prompt, int64_t index, const Show& show) {
  if (options_.beams.beams > 1) return searched(prompt, show);
  Answer answer;
  std::optional<StreamDecoder> stream;
  if (tokenizer_) stream.emplace(*tokenizer_);
  StopStrings stops(options_.stops);
  const auto add = [&](const std::string& text) {
    answer.text += text;
    if (!show || show(text)) return true;
    answer.end = AnswerEnd::interrupted;
    return false;
  };
  const auto on_token = [&](int32_t id) {
    if (ends_answers(id)) {
      answer.end = AnswerEnd::end_token;
      return false;
    }
    answer.ids.push_back(id);
    if (stream && !add(stops.push(stream->push(id)))) return false;
    if (stops.found()) answer.end = AnswerEnd::stop;
    return !stops.found();
  };
  generator_->generate(
      prompt, options_.max_new_tokens,
      [&](std::span<const float> logits, int64_t number) { return sampler_.choose(logits, index, number); },
      on_token, options_.go_on);
  if (answer.end == AnswerEnd::length && static_cast<int64_t>(answer.ids.size()) < options_.max_new_tokens)
    answer.end = AnswerEnd::context;
  if (stream && !stops.found() && answer.end != AnswerEnd::interrupted) {
    add(stops.push(stream->finish()));
    add(stops.finish());
  }
  return answer;
}

}  // namespace plimsoll
