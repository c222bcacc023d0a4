#include "cli/answer_arguments.h"
#include "cli/commands.h"
#include "cli/usage_text.h"
#include "train/evaluate.h"

namespace plimsoll {
namespace {

struct EvalArguments {
  EvalOptions options;
  AnswerArguments shared;
};

void add_data(CLI::App& command, EvalOptions& options) {
  command
      .add_option("--data", options.data,
                  "rows to evaluate; else the evaluation rows that the run in the folder had")
      ->type_name("FILE");
  command.add_option("--set", options.sets, "key=value of a recipe, such as data.columns (may be repeated)")
      ->type_name("KEY=VALUE");
  command.add_option("--limit", options.limit, "the first rows only")->check(at_least(1));
  command
      .add_option("--max-length", options.max_length,
                  "tokens of a row; longer ones are cut. Else as the run had it, or 1,024")
      ->check(CLI::Range(int64_t{1}, kMostTokens));
  command.add_option("--batch", options.batch, "rows at a time; 0: as many as fit, up to 16")
      ->check(CLI::Range(int64_t{0}, int64_t{65536}))
      ->capture_default_str();
  command.add_flag("--generate", options.generate, "also answer the rows: exact matches and BLEU");
  command.add_option("--out", options.out, "with --generate: write the answers here, as JSON lines")
      ->type_name("FILE");
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App* command = app.add_subcommand("eval", "loss, perplexity, exact matches and BLEU over a data set");
  arguments->shared.add_model(*command, arguments->options);
  add_data(*command, arguments->options);
  AnswerArguments::add_template(*command, arguments->options);
  arguments->shared.add_choices(*command, arguments->options);
  arguments->shared.add_machine(*command, arguments->options);
  AnswerArguments::add_json(*command, arguments->options);
  command->callback([arguments, &action] {
    action = [arguments] {
      arguments->shared.finish(arguments->options);
      return evaluate(arguments->options);
    };
  });
}

}  // namespace plimsoll
