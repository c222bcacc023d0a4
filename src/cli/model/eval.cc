#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/print.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/model/answer_arguments.h"
#include "cli/usage_text.h"
#include "infer/evaluate.h"
#include "report/progress.h"

namespace plimsoll {
namespace {

struct EvalArguments {
  EvalOptions options;
  AnswerArguments shared;
};

void print_text(const Evaluation& evaluation) {
  const auto& [loss, answers, device] = evaluation;
  TextTable table({false, true, false});
  const auto number = [](double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", value);
    return std::string(text);
  };
  char mean[32];
  std::snprintf(mean, sizeof mean, "%.6f", loss.loss);
  const bool tokens = loss.unit == "target tokens";
  table.add_row({"loss", mean,
                 tokens ? "per target token, over " + format_count(loss.target_tokens)
                        : formatted("the mean over {} {}", format_count(loss.target_tokens), loss.unit)});
  if (tokens) table.add_row({"perplexity", number(loss.perplexity()), ""});
  for (const Metric& metric : loss.metrics)
    table.add_row({std::string(metric.name), number(metric.value), ""});
  table.add_row(
      {"rows", format_count(loss.rows),
       formatted("{} cut, {} without a target{}", format_count(loss.truncated), format_count(loss.skipped),
                 loss.damaged > 0 ? formatted(", {} damaged", format_count(loss.damaged)) : "")});
  if (answers && answers->expected > 0) {
    const BleuScore bleu = answers->bleu.score();
    char score[32] = "-";
    if (bleu.has_score()) std::snprintf(score, sizeof score, "%.2f", bleu.score);
    table.add_row(
        {"exact match",
         number(100.0 * static_cast<double>(answers->exact) / static_cast<double>(answers->expected)),
         formatted("% ({} of {})", format_count(answers->exact), format_count(answers->expected))});
    table.add_row({"BLEU", score,
                   formatted("{}{} words for {}", bleu.has_score() ? "13a, " : "no answer has four words; ",
                             format_count(bleu.answer_words), format_count(bleu.reference_words))});
  }
  print(table.render());
}

void print_json(const Evaluation& evaluation) {
  const auto& [loss, answers, device] = evaluation;
  nlohmann::ordered_json json = {{"loss", loss.loss},
                                 {"mean_over", loss.unit},
                                 {"rows", loss.rows},
                                 {"skipped_rows", loss.skipped},
                                 {"damaged_rows", loss.damaged},
                                 {"truncated_rows", loss.truncated},
                                 {"tokens", loss.tokens},
                                 {"target_tokens", loss.target_tokens},
                                 {"seconds", loss.seconds},
                                 {"device", device}};
  if (loss.unit == "target tokens") json["perplexity"] = loss.perplexity();
  for (const Metric& metric : loss.metrics) json["metrics"][std::string(metric.name)] = metric.value;
  if (answers) {
    const BleuScore bleu = answers->bleu.score();
    json["answers"] = {{"rows", answers->rows},
                       {"tokens", answers->tokens},
                       {"seconds", answers->seconds},
                       {"expected", answers->expected},
                       {"exact", answers->exact},
                       {"bleu", bleu.has_score() ? nlohmann::ordered_json(bleu.score) : nullptr},
                       {"bleu_precisions", bleu.precisions},
                       {"brevity_penalty", bleu.brevity_penalty}};
  }
  print(json_text(json));
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App* command = app.add_subcommand("eval", "loss, perplexity, exact matches and BLEU over a data set");
  arguments->shared.add_model(*command, arguments->options);
  AnswerArguments::add_rows(*command, arguments->options,
                            "rows to evaluate; by default the run's evaluation data",
                            "write the answers of --generate, or the scores, here as JSON lines");
  command->add_flag("--generate", arguments->options.generate,
                    "also generate answers: exact matches and BLEU");
  AnswerArguments::add_template(*command, arguments->options);
  arguments->shared.add_thinking(*command);
  arguments->shared.add_choices(*command, arguments->options);
  arguments->shared.add_beams(*command, arguments->options);
  arguments->shared.add_machine(*command, arguments->options);
  arguments->shared.add_json(*command);
  command->callback([arguments, &action] {
    action = [arguments] {
      arguments->shared.finish(arguments->options);
      Progress progress(arguments->shared.json() ? LogLevel::error : LogLevel::info, 1);
      arguments->options.observer = &progress;
      const Evaluation evaluation = evaluate(arguments->options);
      arguments->shared.json() ? print_json(evaluation) : print_text(evaluation);
      return ExitCode::ok;
    };
  });
}

}  // namespace plimsoll
