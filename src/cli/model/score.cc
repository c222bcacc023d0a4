// `plimsoll score` and `plimsoll classify`: scores of rows or texts by a reward model, or a classifier.
#include "infer/score.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/print.h"
#include "base/printable.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/model/answer_arguments.h"
#include "cli/usage_text.h"
#include "report/progress.h"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

struct ScoreArguments {
  ScoreOptions options;
  AnswerArguments shared;
};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

// A line's result for people: a reward, the class with its probability, the classes, or the numbers.
std::vector<std::string> cells(const Json& line) {
  if (line.contains("score")) return {number(line["score"])};
  std::string words;
  const auto add = [&words](const std::string& word) { words += (words.empty() ? "" : ", ") + word; };
  const auto name = [](const Json& label) {
    return label.is_string() ? printable(label.get<std::string>()) : label.dump();
  };
  if (line.contains("label")) {
    double best = 0;
    for (const Json& value : line["probabilities"]) best = std::max(best, value.get<double>());
    return {name(line["label"]), number(best)};
  }
  if (line.contains("labels")) {
    for (const Json& label : line["labels"]) add(name(label));
    return {words.empty() ? "none" : words};
  }
  for (const Json& value : line["values"]) add(number(value));
  return {words};
}

void print_texts(const std::vector<Json>& lines, const std::vector<std::string>& texts) {
  if (lines.empty()) return;
  std::vector<bool> right(cells(lines.front()).size() + 1, false);
  right[0] = lines.front().contains("score");
  TextTable table(right);
  for (const Json& line : lines) {
    std::vector<std::string> row = cells(line);
    row.push_back(printable(texts[line["row"].get<size_t>()]));
    table.add_row(std::move(row));
  }
  print(table.render());
}

void print_tally(const RowTally& tally, bool json) {
  if (json) {
    print(json_text(Json{{"rows", tally.rows},
                         {"skipped_rows", tally.skipped},
                         {"damaged_rows", tally.damaged},
                         {"truncated_rows", tally.truncated},
                         {"tokens", tally.tokens},
                         {"seconds", tally.seconds},
                         {"device", tally.device}},
                    -1));
    return;
  }
  say(formatted("done    {} rows, {} tokens in {}{}{}{}", format_count(tally.rows),
                format_count(tally.tokens), format_seconds(tally.seconds),
                tally.truncated > 0 ? formatted(" · {} cut", format_count(tally.truncated)) : "",
                tally.skipped > 0 ? formatted(" · {} too long, left out", format_count(tally.skipped)) : "",
                tally.damaged > 0 ? formatted(" · {} damaged", format_count(tally.damaged)) : ""));
}

ExitCode run(ScoreArguments& arguments, const std::string& command) {
  ScoreOptions& options = arguments.options;
  const bool json = arguments.shared.json(), texts = !options.texts.empty();
  const std::string one = options.rewards ? "--response" : "--text";
  if (texts == options.data.has_value())
    throw UsageError(formatted("{}: name rows with --data, or give {}, one or several", command, one));
  if (options.partner && !texts)
    throw UsageError(formatted("{}: {} goes with {}; rows of --data have their own", command,
                               options.rewards ? "--prompt" : "--text-pair", one));
  Progress progress(json ? LogLevel::error : LogLevel::info, 1);
  options.observer = &progress;
  std::vector<Json> kept;
  const RowTally tally = score(options, [&](const Json& line) {
    if (texts && !json)
      kept.push_back(line);
    else
      print(json_text(line, -1));
  });
  if (texts && !json && !options.out) print_texts(kept, options.texts);
  if (options.out || !texts) print_tally(tally, json && options.out);
  return ExitCode::ok;
}

std::shared_ptr<ScoreArguments> add(CLI::App& command, const std::string& name, Action& action) {
  auto arguments = std::make_shared<ScoreArguments>();
  arguments->shared.add_model(command, arguments->options);
  AnswerArguments::add_rows(command, arguments->options,
                            "rows to score; labels and margins in them are ignored",
                            "write the lines to this file instead of printing them");
  AnswerArguments::add_template(command, arguments->options);
  arguments->shared.add_machine(command, arguments->options);
  arguments->shared.add_json(command);
  command.callback([arguments, name, &action] {
    action = [arguments, name] {
      arguments->shared.finish(arguments->options);
      return run(*arguments, name);
    };
  });
  return arguments;
}

}  // namespace

void add_score(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("score", "score answers with a reward model");
  ScoreOptions& options = add(*command, "score", action)->options;
  options.rewards = true;
  command->add_option("--response", options.texts, "score this answer (may be repeated)");
  command->add_option("--prompt", options.partner, "the prompt that --response answers");
}

void add_classify(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("classify", "classify texts, with probabilities; or predict numbers");
  ScoreOptions& options = add(*command, "classify", action)->options;
  command->add_option("--text", options.texts, "classify this text (may be repeated)");
  command->add_option("--text-pair", options.partner, "the second text, for models of text pairs");
}

}  // namespace plimsoll
