#include "train/generate.h"

#include "cli/commands.h"

namespace plimsoll {
namespace {

// Beyond every model's positions, small enough that sizes in bytes cannot overflow.
constexpr int64_t kMostTokens = int64_t{1} << 24;

struct GenerateArguments {
  GenerateOptions options;
  std::string max_isa, precision;
};

void add_questions(CLI::App& command, GenerateOptions& options) {
  command.add_option("folder", options.folder, "model folder, or a finished run's")->required();
  command.add_option("--adapter", options.adapter, "PEFT folder over the model");
  command.add_option("--prompt", options.prompt, "answer this text");
  command.add_option("--ids", options.ids, "answer these token ids; prints ids")->delimiter(',');
  command.add_option(
      "--data", options.data,
      "answer the column 'prompt' (or 'messages') of a .parquet or .jsonl file; where it has a "
      "column 'response', count the exact matches");
  command
      .add_option("--template", options.chat_template,
                  "how prompts are put to the model: auto (as in training, or the model's own), plain, "
                  "chatml, llama2, "
                  "llama3, mistral, alpaca")
      ->capture_default_str();
  command.add_option("--system", options.system, "a system message before the prompt");
  command.add_option("--limit", options.limit, "rows of --data")->check(CLI::PositiveNumber);
  command.add_option("--out", options.out, "write the answers to --data here, as JSON lines");
}

void add_choices(CLI::App& command, GenerateArguments& arguments) {
  GenerateOptions& options = arguments.options;
  command.add_option("--max-new-tokens", options.max_new_tokens, "longest answer")
      ->check(CLI::Range(int64_t{1}, kMostTokens))
      ->capture_default_str();
  command.add_option("--context", options.context, "tokens of prompt and answer; sizes the cache")
      ->check(CLI::Range(int64_t{1}, kMostTokens));
  command.add_option("--temperature", options.sampling.temperature, "0 takes the likeliest token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--top-k", options.sampling.top_k, "sample among so many tokens; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_option("--top-p", options.sampling.top_p, "sample among the likeliest with this share")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command.add_option("--seed", options.sampling.seed, "of sampling")->capture_default_str();
  command.add_option("--precision", arguments.precision, "fp32 or bf16; else as config.json says")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  command.add_option("--max-isa", arguments.max_isa,
                     "use no instructions beyond avx2, avx512, avx512-bf16 or amx");
  command.add_option("--threads", options.machine.threads, "0: one per CPU")->check(CLI::NonNegativeNumber);
  command.add_flag("--json", options.json, "for machines");
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand("generate", "answer prompts with a model or a finished run");
  add_questions(*command, arguments->options);
  add_choices(*command, *arguments);
  command->callback([arguments, &action] {
    action = [arguments] {
      GenerateOptions& options = arguments->options;
      options.machine.max_isa = read_isa(arguments->max_isa);
      if (!arguments->precision.empty())
        options.precision = arguments->precision == "bf16" ? DType::bf16 : DType::f32;
      return generate(options);
    };
  });
}

}  // namespace plimsoll
