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
                  "model folder, run folder, or a model's name on the Hugging Face hub")
      ->required()
      ->type_name("FOLDER");
  command.add_option("--adapter", options.adapter, "PEFT adapter folder for the model")->type_name("FOLDER");
}

void AnswerArguments::add_sets(CLI::App& command, std::vector<std::string>& sets) {
  command
      .add_option("--set", sets,
                  "key=value: recipe keys for reading --data, such as data.columns (may be repeated)")
      ->type_name("KEY=VALUE");
}

void AnswerArguments::add_rows(CLI::App& command, RowOptions& options, const std::string& data,
                               const std::string& out) {
  command.add_option("--data", options.data, data)->type_name("FILE");
  add_sets(command, options.sets);
  command.add_option("--limit", options.limit, "the first rows only")->check(at_least(1));
  command
      .add_option("--max-length", options.max_length,
                  "maximum tokens of a row; longer rows are truncated. By default as in training, or 1,024")
      ->check(CLI::Range(int64_t{1}, kMostTokens));
  command.add_option("--batch", options.batch, "batch size; 0: as many as fit, up to 16")
      ->check(CLI::Range(int64_t{0}, int64_t{65536}))
      ->capture_default_str();
  command.add_option("--out", options.out, out)->type_name("FILE");
}

void AnswerArguments::add_template(CLI::App& command, AnswerOptions& options) {
  std::vector<std::string> names = {"auto", "plain"};
  for (const BuiltinTemplate& one : builtin_templates()) names.emplace_back(one.name);
  command
      .add_option(
          "--template", options.chat_template,
          "chat template of prompts: auto (as in training, or the model's own), plain, or a name such as "
          "llama3 or llama-factory/qwen (docs/howto/data.md)")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
}

void AnswerArguments::add_system(CLI::App& command, AnswerOptions& options) {
  command.add_option("--system", options.system, "a system message before the prompt")->type_name("TEXT");
}

void AnswerArguments::add_thinking(CLI::App& command) {
  command
      .add_option("--thinking", thinking_,
                  "enable_thinking of the chat template: on or off; by default as the template has it")
      ->check(CLI::IsMember({"on", "off"}));
}

void AnswerArguments::add_choices(CLI::App& command, AnswerOptions& options) {
  command.add_option("--max-new-tokens", options.max_new_tokens, "maximum number of new tokens")
      ->check(CLI::Range(int64_t{1}, kMostTokens))
      ->capture_default_str();
  command
      .add_option("--stop", stops_,
                  "a text that ends the answer and is not part of it; \\n is a newline (may be repeated)")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command.add_option("--context", options.context, "tokens of prompt and answer; the size of the KV cache")
      ->check(CLI::Range(int64_t{1}, kMostTokens));
  command
      .add_option("--temperature", options.sampling.temperature, "sampling temperature; 0: greedy decoding")
      ->check(at_least(0))
      ->capture_default_str();
  command.add_option("--top-k", options.sampling.top_k, "sample among the k likeliest tokens; 0: all")
      ->check(at_least(0))
      ->capture_default_str();
  command
      .add_option("--top-p", options.sampling.top_p,
                  "nucleus sampling: the likeliest tokens with this total probability")
      ->check(share())
      ->capture_default_str();
  command.add_option("--seed", options.sampling.seed, "random seed of sampling")
      ->check(at_least(0))
      ->capture_default_str();
}

void AnswerArguments::add_beams(CLI::App& command, AnswerOptions& options) {
  constexpr int64_t kMostBeams = 256;
  BeamOptions& beams = options.beams;
  command.add_option("--num-beams", beams.beams, "above 1: beam search with this many beams")
      ->check(CLI::Range(int64_t{1}, kMostBeams))
      ->capture_default_str();
  command
      .add_option("--length-penalty", beams.length_penalty,
                  "beam search: scores are divided by the length to this power; above 0 favours long answers")
      ->check(between(-10, 10))
      ->capture_default_str();
  command
      .add_option(
          "--early-stopping", early_stopping_,
          "beam search: true: stop with as many answers as beams; false: when better ones are unlikely; "
          "never: when they are impossible")
      ->check(CLI::IsMember({"false", "true", "never"}))
      ->capture_default_str();
}

void AnswerArguments::add_machine(CLI::App& command, AnswerOptions& options) {
  command
      .add_option("--precision", precision_,
                  "fp32, bf16 or fp16; by default as in training, or as in config.json")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  command
      .add_option(
          "--device", options.device,
          "cpu, cuda (cuda:1, or cuda: and the start of a UUID, for one of several GPUs) or emulated; by "
          "default the device of the training, or the CPU")
      ->type_name("DEVICE");
  command
      .add_option("--graphs", graphs_,
                  "CUDA graphs: auto, on or off; by default as in the run (memory.graphs)")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  command.add_option("--max-isa", max_isa_,
                     "highest instruction set to use: avx2, avx512, avx512-bf16 or amx");
  command.add_option("--threads", options.machine.threads, "0: one per CPU")->check(at_least(0));
}

void AnswerArguments::add_json(CLI::App& command) { command.add_flag("--json", json_, "JSON output"); }

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
  if (!thinking_.empty()) options.thinking = thinking_ == "on";
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
