#include "cli/model/answer_arguments.h"

#include "base/error.h"
#include "chat/builtin_templates.h"
#include "cli/commands.h"
#include "cli/run_result.h"
#include "cli/usage_text.h"

namespace plimsoll {
namespace {

// \n, \t and \\ as people write them where their shell has no other way.
std::string unescaped(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] != '\\' || (next != 'n' && next != 't' && next != '\\')) {
      result += text[i];
      continue;
    }
    result += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
    ++i;
  }
  return result;
}

}  // namespace

void AnswerArguments::add_model(CLI::App& command, AnswerOptions& options) {
  command
      .add_option("folder", options.folder,
                  "model folder, a finished run's, or a model's name on the Hugging Face hub")
      ->required()
      ->type_name("FOLDER");
  command.add_option("--adapter", options.adapter, "PEFT folder over the model")->type_name("FOLDER");
}

void AnswerArguments::add_sets(CLI::App& command, std::vector<std::string>& sets) {
  command
      .add_option("--set", sets,
                  "key=value of a recipe that says how rows of --data are read, such as data.columns (may be "
                  "repeated)")
      ->type_name("KEY=VALUE");
}

void AnswerArguments::add_rows(CLI::App& command, RowOptions& options, const std::string& data,
                               const std::string& out) {
  command.add_option("--data", options.data, data)->type_name("FILE");
  add_sets(command, options.sets);
  command.add_option("--limit", options.limit, "the first rows only")->check(at_least(1));
  command
      .add_option("--max-length", options.max_length,
                  "tokens of a row; longer ones are cut. Else as the run had it, or 1,024")
      ->check(CLI::Range(int64_t{1}, kMostTokens));
  command.add_option("--batch", options.batch, "rows at a time; 0: as many as fit, up to 16")
      ->check(CLI::Range(int64_t{0}, int64_t{65536}))
      ->capture_default_str();
  command.add_option("--out", options.out, out)->type_name("FILE");
}

void AnswerArguments::add_template(CLI::App& command, AnswerOptions& options) {
  std::vector<std::string> names = {"auto", "plain"};
  for (const BuiltinTemplate& one : builtin_templates()) names.emplace_back(one.name);
  command
      .add_option("--template", options.chat_template,
                  "how prompts are put to the model: auto (as in training, or the model's own), plain, or "
                  "one by name")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
}

void AnswerArguments::add_system(CLI::App& command, AnswerOptions& options) {
  command.add_option("--system", options.system, "a system message before the prompt")->type_name("TEXT");
}

void AnswerArguments::add_choices(CLI::App& command, AnswerOptions& options) {
  command.add_option("--max-new-tokens", options.max_new_tokens, "longest answer")
      ->check(CLI::Range(int64_t{1}, kMostTokens))
      ->capture_default_str();
  command
      .add_option("--stop", stops_,
                  "a text that ends the answer and is no part of it; \\n is a line's end (may be repeated)")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command.add_option("--context", options.context, "tokens of prompt and answer; sizes the cache")
      ->check(CLI::Range(int64_t{1}, kMostTokens));
  command.add_option("--temperature", options.sampling.temperature, "0 takes the likeliest token")
      ->check(at_least(0))
      ->capture_default_str();
  command.add_option("--top-k", options.sampling.top_k, "sample among so many tokens; 0: all")
      ->check(at_least(0))
      ->capture_default_str();
  command.add_option("--top-p", options.sampling.top_p, "sample among the likeliest with this share")
      ->check(share())
      ->capture_default_str();
  command.add_option("--seed", options.sampling.seed, "of sampling")
      ->check(at_least(0))
      ->capture_default_str();
}

void AnswerArguments::add_beams(CLI::App& command, AnswerOptions& options) {
  constexpr int64_t kMostBeams = 256;
  BeamOptions& beams = options.beams;
  command
      .add_option("--num-beams", beams.beams,
                  "above 1: search the answer that is likeliest as a whole, with so many at once")
      ->check(CLI::Range(int64_t{1}, kMostBeams))
      ->capture_default_str();
  command
      .add_option("--length-penalty", beams.length_penalty,
                  "of beams: scores are divided by the length to this power; above 0 favours long answers")
      ->check(between(-10, 10))
      ->capture_default_str();
  command
      .add_option(
          "--early-stopping", early_stopping_,
          "of beams: true ends with as many answers as beams, false when better ones are unlikely, never "
          "when they are impossible")
      ->check(CLI::IsMember({"false", "true", "never"}))
      ->capture_default_str();
}

void AnswerArguments::add_machine(CLI::App& command, AnswerOptions& options) {
  command
      .add_option("--precision", precision_,
                  "fp32, bf16 or fp16; else that of the training, or of config.json")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  command
      .add_option(
          "--device", options.device,
          "cpu, cuda (of several cards cuda:1, or cuda: and the beginning of a UUID) or emulated; else "
          "what the run trained on, or the CPU")
      ->type_name("DEVICE");
  command
      .add_option("--graphs", graphs_,
                  "whether a card's calls are captured and launched as one: auto, on or off; else as "
                  "memory.graphs of the run says")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  command.add_option("--max-isa", max_isa_, "use no instructions beyond avx2, avx512, avx512-bf16 or amx");
  command.add_option("--threads", options.machine.threads, "0: one per CPU")->check(at_least(0));
}

void AnswerArguments::add_json(CLI::App& command) { command.add_flag("--json", json_, "for machines"); }

void AnswerArguments::finish(AnswerOptions& options) const {
  require_result(options.folder);
  if (options.adapter) require_result(*options.adapter);
  options.machine.max_isa = read_isa(max_isa_);
  if (!precision_.empty())
    options.precision = precision_ == "bf16" ? DType::bf16 : precision_ == "fp16" ? DType::f16 : DType::f32;
  if (!graphs_.empty())
    options.graphs = graphs_ == "on"    ? UseGraphs::on
                     : graphs_ == "off" ? UseGraphs::off
                                        : UseGraphs::automatic;
  BeamOptions& beams = options.beams;
  if (early_stopping_ != "false")
    beams.early_stopping = early_stopping_ == "never" ? EarlyStopping::never : EarlyStopping::when_full;
  if (beams.best > beams.beams)
    throw UsageError("--num-return-sequences: at most as many answers as --num-beams are found");
  if (beams.beams > 1 && options.sampling.temperature > 0)
    throw UsageError("--num-beams searches the likeliest answer, --temperature draws one; give one of them");
  if (beams.beams > 1 && !stops_.empty())
    throw UsageError(
        "--stop ends an answer as it is written; with --num-beams answers end at end tokens alone");
  for (const std::string& stop : stops_) {
    if (stop.empty()) throw UsageError("--stop: the empty text would end every answer");
    options.stops.push_back(unescaped(stop));
  }
}

}  // namespace plimsoll
