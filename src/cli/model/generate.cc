#include "infer/generate.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/print.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/caller_arguments.h"
#include "cli/commands.h"
#include "cli/model/answer_arguments.h"
#include "cli/usage_text.h"
#include "report/progress.h"

namespace plimsoll {
namespace {

struct GenerateArguments {
  GenerateOptions options;
  AnswerArguments shared;
  CallerArguments caller;
};

// "1,2,3"
void append_ids(const std::string& text, std::vector<int32_t>& ids) {
  for (const std::string& part : split(text, ',')) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), id);
    if (error != std::errc() || end != part.data() + part.size() || id < 0)
      throw UsageError(formatted("--ids: '{}' is no token id; write them as 1,2,3", part));
    ids.push_back(id);
  }
}

void add_questions(CLI::App& command, GenerateOptions& options) {
  command.add_option("--prompt", options.prompt, "answer this text");
  command.add_option("--prompt-file", options.prompt_file, "answer the text in this file; -: standard input")
      ->type_name("FILE");
  command
      .add_option_function<std::vector<std::string>>(
          "--ids",
          [&options](const std::vector<std::string>& words) {
            for (const std::string& word : words) append_ids(word, options.ids);
          },
          "answer these token ids, and print ids")
      ->type_name("ID,ID,...");
  command
      .add_option(
          "--data", options.data,
          "answer the prompts (or conversations) of a data file; if it has responses, count exact matches")
      ->type_name("FILE");
  AnswerArguments::add_sets(command, options.sets);
  command.add_option("--limit", options.limit, "rows of --data")->check(at_least(1));
  command.add_option("--out", options.out, "write the answers here, as JSON lines")->type_name("FILE");
}

std::string joined(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

nlohmann::ordered_json json_of(const Answer& answer) {
  nlohmann::ordered_json line = {
      {"response", answer.text}, {"response_ids", answer.ids}, {"ended_by", to_string(answer.end)}};
  if (answer.score) line["score"] = *answer.score;
  return line;
}

// One of several answers has its score before it.
void print_scored(const Answer& answer, bool ids, bool several) {
  char score[32] = "";
  if (several) std::snprintf(score, sizeof score, "%8.4f  ", answer.score.value_or(0));
  print(formatted("{}{}\n", score, ids ? joined(answer.ids) : answer.text));
}

void print_answer(const Generated& done, bool json, bool streamed) {
  if (streamed) {
    print("\n");
  } else if (json) {
    nlohmann::ordered_json line = {{"prompt", done.question.prompt}, {"prompt_ids", done.question.ids}};
    line.update(json_of(done.answer));
    for (const Answer& next : done.answer.next) line["next_best"].push_back(json_of(next));
    line["device"] = done.device;
    print(json_text(line, -1));
  } else {
    print_scored(done.answer, done.question.prompt.empty(), !done.answer.next.empty());
    for (const Answer& next : done.answer.next) print_scored(next, done.question.prompt.empty(), true);
  }
}

void print_tally(const AnswerTally& tally, const std::string& device, bool json) {
  if (json) {
    nlohmann::ordered_json out = {{"rows", tally.rows}, {"tokens", tally.tokens}, {"seconds", tally.seconds}};
    if (tally.expected > 0) out["exact"] = tally.exact;
    out["device"] = device;
    print(json_text(out, -1));
    return;
  }
  say(formatted("done    {} answers, {} tokens in {}", format_count(tally.rows), format_count(tally.tokens),
                format_seconds(tally.seconds)));
  if (tally.expected > 0) print(formatted("exact match {}\n", exact_match_text(tally)));
}

ExitCode run(GenerateOptions& options, bool json) {
  Progress progress(json ? LogLevel::error : LogLevel::info, 1);
  const CallerArguments::Observer observer(progress);
  options.observer = observer.get();
  const bool streams = !json && options.ids.empty() && !options.data && options.beams.best == 1;
  const auto show = [streams](std::string_view text) {
    if (!streams) return true;
    print(text);
    flush_output();
    return true;
  };
  const Generated done = generate(options, show);
  if (done.rows)
    print_tally(*done.rows, done.device, json);
  else
    print_answer(done, json, streams);
  return ExitCode::ok;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand("generate", "answer prompts with a model or a finished run");
  arguments->shared.add_model(*command, arguments->options);
  add_questions(*command, arguments->options);
  AnswerArguments::add_template(*command, arguments->options);
  AnswerArguments::add_system(*command, arguments->options);
  arguments->shared.add_thinking(*command);
  arguments->shared.add_choices(*command, arguments->options);
  arguments->shared.add_beams(*command, arguments->options);
  command
      ->add_option("--num-return-sequences", arguments->options.beams.best,
                   "beam search: number of answers, best first, with their scores")
      ->check(at_least(1))
      ->capture_default_str();
  arguments->shared.add_machine(*command, arguments->options);
  arguments->shared.add_json(*command);
  arguments->caller.add_to(*command);
  command->callback([arguments, &action] {
    action = [arguments] {
      arguments->caller.begin("generate");
      arguments->shared.finish(arguments->options);
      return run(arguments->options, arguments->shared.json());
    };
  });
}

}  // namespace plimsoll
