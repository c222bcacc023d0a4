#include "train/generate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "base/units.h"
#include "cpu/threads.h"
#include "recipe/load.h"
#include "text/stream_decoder.h"
#include "train/generator.h"
#include "train/progress.h"
#include "train/quantised_weights.h"
#include "train/questions.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Contexts are rounded up to this, so that prompts of about one length make one plan.
constexpr int64_t kContextStep = 32;

struct Answer {
  std::vector<int32_t> ids;  // without the token that ended it
  std::string text;
};

std::optional<Tokenizer> load_tokenizer(const GenerateOptions& options, const fs::path& base) {
  if (const auto file = Tokenizer::find_file(base)) return Tokenizer::from_file(*file);
  if (!options.ids.empty()) return std::nullopt;
  throw UsageError(base.string() +
                   ": has no tokenizer.json or tokenizer.model, which texts need (--ids does not)");
}

int64_t context_of(const GenerateOptions& options, const ModelSpec& model,
                   const std::vector<Question>& questions) {
  size_t longest = 1;
  for (const Question& question : questions) longest = std::max(longest, question.ids.size());
  const bool bounded = model.rope.type != RopeType::dynamic;
  const int64_t wanted = options.context.value_or(
      round_up(static_cast<int64_t>(longest) + options.max_new_tokens, kContextStep));
  if (!bounded) return wanted;
  if (options.context && wanted > model.max_positions) {
    throw UsageError("--context: " + format_count(wanted) + " tokens, but the model knows " +
                     format_count(model.max_positions) + " positions (max_position_embeddings)");
  }
  return std::min(wanted, model.max_positions);
}

// Quantised where the folder's weights are, or where the adapter is of a run that trained it beside weights
// in 4 bits: it answers with the weights that it was trained with.
std::optional<QuantiseOptions> nf4_of(const ModelPaths& paths) {
  if (auto stored = stored_quantisation(paths.base)) return stored;
  if (!paths.adapter || !fs::exists(*paths.adapter / "recipe.yaml")) return std::nullopt;
  const Recipe recipe = load_recipe((*paths.adapter / "recipe.yaml").string()).recipe;
  if (recipe.method.type != MethodType::qlora) return std::nullopt;
  return QuantiseOptions{recipe.method.double_quant};
}

GenerationRequest request_of(const GenerateOptions& options, const ModelPaths& paths) {
  GenerationRequest request;
  request.model = read_model_spec(paths.base / "config.json");
  request.compute = options.precision.value_or(stored_type(paths.base));
  if (paths.adapter) read_adapter_config(*paths.adapter, request.lora.emplace());
  request.nf4 = nf4_of(paths);
  return request;
}

class Session {
 public:
  Session(const GenerateOptions& options, GenerationPlan plan, const CpuSettings& cpu,
          const std::optional<Tokenizer>& tokenizer, std::vector<int32_t> stops)
      : options_(options),
        generator_(std::move(plan), cpu),
        sampler_(options.sampling),
        tokenizer_(tokenizer),
        stops_(std::move(stops)) {}

  void load(const ModelPaths& paths) {
    Progress progress(options_.json, 1);
    load_base_weights(generator_.state(), paths.base,
                      [&](int64_t done, int64_t total) { progress.loading(done, total); });
    if (paths.adapter) load_adapters(generator_.state(), *paths.adapter);
  }

  // `show` gets each piece of text as it is complete.
  template <class Show>
  Answer answer(const Question& question, int64_t index, Show show) {
    Answer answer;
    std::optional<StreamDecoder> stream;
    if (tokenizer_) stream.emplace(*tokenizer_);
    const auto piece = [&](const std::string& text) {
      answer.text += text;
      show(text);
    };
    generator_.generate(
        question.ids, options_.max_new_tokens,
        [&](std::span<const float> logits, int64_t number) { return sampler_.choose(logits, index, number); },
        [&](int32_t id) {
          if (std::find(stops_.begin(), stops_.end(), id) != stops_.end()) return false;
          answer.ids.push_back(id);
          if (stream) piece(stream->push(id));
          return true;
        });
    if (stream) piece(stream->finish());
    return answer;
  }

 private:
  const GenerateOptions& options_;
  Generator generator_;
  Sampler sampler_;
  const std::optional<Tokenizer>& tokenizer_;
  std::vector<int32_t> stops_;
};

std::string joined(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

// Texts may hold bytes that are no UTF-8 (a data file's): they become U+FFFD.
std::string print(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void answer_one(Session& session, const GenerateOptions& options, const Question& question) {
  const bool streams = !options.json && options.ids.empty();
  const Answer answer = session.answer(question, 0, [&](const std::string& text) {
    if (!streams) return;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  });
  if (streams) {
    std::fputc('\n', stdout);
  } else if (options.json) {
    const nlohmann::ordered_json json = {{"prompt", question.prompt},
                                         {"prompt_ids", question.ids},
                                         {"response", answer.text},
                                         {"response_ids", answer.ids}};
    std::printf("%s\n", print(json).c_str());
  } else {
    std::printf("%s\n", joined(answer.ids).c_str());
  }
}

// "generate  12/240", on a terminal only.
void show_progress(size_t done, size_t total) {
  if (isatty(STDERR_FILENO) != 1) return;
  std::fprintf(stderr, "\r\033[Kgenerate  %zu/%zu%s", done, total, done == total ? "\r\033[K" : "");
}

struct Tally {
  int64_t rows = 0, expected = 0, exact = 0, tokens = 0;
  double seconds = 0;
};

void report(const Tally& tally, bool json) {
  if (json) {
    nlohmann::ordered_json out = {{"rows", tally.rows}, {"tokens", tally.tokens}, {"seconds", tally.seconds}};
    if (tally.expected > 0) out["exact"] = tally.exact;
    std::printf("%s\n", out.dump().c_str());
    return;
  }
  std::fprintf(stderr, "done    %s answers, %s tokens in %s\n", format_count(tally.rows).c_str(),
               format_count(tally.tokens).c_str(), format_seconds(tally.seconds).c_str());
  if (tally.expected > 0) {
    std::printf("exact match %.1f %% (%s of %s)\n",
                100.0 * static_cast<double>(tally.exact) / static_cast<double>(tally.expected),
                format_count(tally.exact).c_str(), format_count(tally.expected).c_str());
  }
}

// Answers go to the file line by line, so that an interrupted run leaves what it had.
void answer_all(Session& session, const GenerateOptions& options, const std::vector<Question>& questions) {
  std::ofstream out;
  if (options.out) {
    out.open(*options.out, std::ios::binary | std::ios::trunc);
    if (!out) throw UsageError("--out: " + options.out->string() + " cannot be written");
  }
  Tally tally;
  const auto start = Clock::now();
  for (const Question& question : questions) {
    const Answer answer = session.answer(question, tally.rows, [](const std::string&) {});
    nlohmann::ordered_json line = {{"prompt", question.prompt}, {"response", answer.text}};
    if (question.expected) {
      line["expected"] = *question.expected;
      tally.expected += 1;
      tally.exact += trim(answer.text) == trim(*question.expected) ? 1 : 0;
    }
    tally.rows += 1;
    tally.tokens += static_cast<int64_t>(answer.ids.size());
    if (options.out && !(out << print(line) << std::endl))
      throw StoppedError("--out: " + options.out->string() + " cannot be written (disk full?)");
    show_progress(static_cast<size_t>(tally.rows), questions.size());
  }
  tally.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  report(tally, options.json);
}

void check(const GenerateOptions& options) {
  const int given = (options.prompt ? 1 : 0) + (options.data ? 1 : 0) + (options.ids.empty() ? 0 : 1);
  if (given != 1) throw UsageError("generate: give one of --prompt, --data and --ids");
  if (!options.data && (options.out || options.limit))
    throw UsageError("generate: --out and --limit belong to --data");
}

}  // namespace

ExitCode generate(const GenerateOptions& options) {
  check(options);
  const ModelPaths paths = find_model(options.folder, options.adapter);
  const CpuSettings cpu = cpu_settings(options.machine);
  GenerationRequest request = request_of(options, paths);
  const std::optional<Tokenizer> tokenizer = load_tokenizer(options, paths.base);
  const std::vector<Question> questions = read_questions(options, tokenizer ? &*tokenizer : nullptr);
  request.context = context_of(options, request.model, questions);
  GenerationPlan plan = plan_generation(std::move(request), cpu);
  require_fit(plan, cpu);
  if (!options.json) {
    std::fprintf(stderr, "plan    device %s · context %s tokens · %s%s\n",
                 format_bytes(plan.arena_bytes()).c_str(), format_count(plan.request.context).c_str(),
                 std::string(to_string(plan.request.compute)).c_str(), plan.request.nf4 ? " · nf4" : "");
  }
  start_threads(cpu.threads);
  Session session(options, std::move(plan), cpu, tokenizer,
                  stop_ids(paths.base, tokenizer ? &*tokenizer : nullptr));
  session.load(paths);
  if (options.data) {
    answer_all(session, options, questions);
  } else {
    answer_one(session, options, questions.front());
  }
  return ExitCode::ok;
}

}  // namespace plimsoll
