#include "cli/usage_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <utility>

#include "base/format.h"
#include "base/printable.h"
#include "base/strings.h"
#include "cli/help.h"

namespace plimsoll {
namespace {

// By the exit code: some of these errors carry the command's name instead of their own.
bool is(const CLI::Error& error, CLI::ExitCodes kind) {
  return error.get_exit_code() == static_cast<int>(kind);
}

// NaN for what is no number.
double number_of(const std::string& text) {
  double value = NAN;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : NAN;
}

// The first word that nothing took; an option goes before what was meant as its value. Options that are
// written --name=value are known by their name.
std::string unknown_word(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(true);
  for (const std::string& word : words)
    if (word.starts_with('-')) return word.substr(0, word.find('='));
  return words.empty() ? "" : words.front();
}

// Words that other programs have for a command, and the command here.
struct OtherWord {
  std::string_view group, word, command;
};
constexpr std::array kOtherWords = {
    OtherWord{"", "version", "plimsoll --version"},
    OtherWord{"", "resume", "plimsoll train RECIPE --resume"},
    OtherWord{"", "continue", "plimsoll train RECIPE --resume"},
    OtherWord{"", "finetune", "plimsoll train"},
    OtherWord{"", "fine-tune", "plimsoll train"},
    OtherWord{"", "sft", "plimsoll train"},
    OtherWord{"", "run", "plimsoll train"},
    OtherWord{"", "start", "plimsoll train"},
    OtherWord{"", "evaluate", "plimsoll eval"},
    OtherWord{"", "test", "plimsoll eval"},
    OtherWord{"", "predict", "plimsoll generate"},
    OtherWord{"", "infer", "plimsoll generate"},
    OtherWord{"", "inference", "plimsoll generate"},
    OtherWord{"", "ask", "plimsoll generate"},
    OtherWord{"", "download", "plimsoll fetch"},
    OtherWord{"", "pull", "plimsoll fetch"},
    OtherWord{"", "quantize", "plimsoll convert"},
    OtherWord{"", "quantise", "plimsoll convert"},
    OtherWord{"", "create", "plimsoll init"},
    OtherWord{"", "new", "plimsoll init"},
    OtherWord{"", "estimate", "plimsoll plan"},
    OtherWord{"", "memory", "plimsoll plan"},
    OtherWord{"", "gpus", "plimsoll devices"},
    OtherWord{"", "benchmark", "plimsoll calibrate"},
    OtherWord{"", "status", "plimsoll top"},
    OtherWord{"", "ps", "plimsoll top"},
    OtherWord{"", "submit", "plimsoll queue add"},
    OtherWord{"", "sweep", "plimsoll queue add RECIPE --sweep KEY=VALUES"},
    OtherWord{"", "serve", "plimsoll export RUN --to vllm --out FOLDER"},
    OtherWord{"", "info", "plimsoll inspect"},
    OtherWord{"", "show", "plimsoll inspect"},
    OtherWord{"", "results", "plimsoll report"},
    OtherWord{"queue", "remove", "plimsoll queue cancel"},
    OtherWord{"queue", "rm", "plimsoll queue cancel"},
    OtherWord{"queue", "delete", "plimsoll queue cancel"},
    OtherWord{"queue", "kill", "plimsoll queue cancel"},
    OtherWord{"queue", "stop", "plimsoll queue cancel"},
    OtherWord{"queue", "hold", "plimsoll queue pause"},
    OtherWord{"queue", "release", "plimsoll queue resume"},
    OtherWord{"queue", "continue", "plimsoll queue resume"},
    OtherWord{"queue", "unpause", "plimsoll queue resume"},
    OtherWord{"queue", "submit", "plimsoll queue add"},
    OtherWord{"queue", "push", "plimsoll queue add"},
    OtherWord{"queue", "start", "plimsoll queue run"},
    OtherWord{"queue", "worker", "plimsoll queue run"},
    OtherWord{"queue", "ls", "plimsoll queue list"},
    OtherWord{"queue", "status", "plimsoll queue list"},
    OtherWord{"queue", "ps", "plimsoll queue list"},
    OtherWord{"queue", "info", "plimsoll queue show"},
    OtherWord{"queue", "log", "plimsoll queue logs"},
    OtherWord{"queue", "rerun", "plimsoll queue retry"},
    OtherWord{"queue", "requeue", "plimsoll queue retry"},
    OtherWord{"queue", "top", "plimsoll top"},
    OtherWord{"queue", "report", "plimsoll report --queue"},
};

// The whole command that such a word means, or that has this name in a group of commands; "" for other words.
std::string meant_command(const HelpCommand& program, std::string_view word) {
  for (const OtherWord& one : kOtherWords)
    if (one.group == program.name && one.word == word) return std::string(one.command);
  for (const HelpCommand& group : program.commands)
    for (const HelpCommand& one : group.commands)
      if (one.last_name() == word) return one.title();
  return "";
}

std::string program_problem(const CLI::App& app, const HelpCommand& program, const CLI::Error& error) {
  const std::string word = unknown_word(app);
  if (word.empty()) return is(error, CLI::ExitCodes::RequiredError) ? "a command is missing" : error.what();
  if (word.starts_with('-'))
    return formatted("there is no option '{}'{}", word, did_you_mean(word, option_names(program)));
  if (const std::string meant = meant_command(program, word); !meant.empty())
    return formatted("there is no command '{}' (did you mean '{}'?)", word, meant);
  std::vector<std::string> names;
  for (const HelpCommand& one : program.commands) names.push_back(one.last_name());
  return formatted("there is no command '{}'{}", word, did_you_mean(word, names));
}

// "recipe is required", as CLI11 says it, names an argument in small letters.
std::string missing(const HelpCommand& command, const std::string& words) {
  const std::string name = words.substr(0, words.find(' '));
  for (const HelpOption& option : command.options) {
    const std::string& shown = option.names.back();
    if (in_small_letters(shown) == name) return formatted("{} is missing: {}", shown, option.meaning);
  }
  return words;
}

// "Could not convert: id = 1,high", as CLI11 says it, has all values of the argument.
std::string unread_value(const std::string& words) {
  constexpr std::string_view kStart = "Could not convert: ", kBetween = " = ";
  const size_t between = words.find(kBetween);
  if (!words.starts_with(kStart) || between == std::string::npos) return words;
  const std::string name = words.substr(kStart.size(), between - kStart.size());
  std::string bad;
  for (const std::string& value : split(words.substr(between + kBetween.size()), ','))
    if (bad.empty() && !std::isfinite(number_of(value))) bad = value;
  return formatted("{}: expected a number, found '{}'", name,
                   bad.empty() ? words.substr(between + kBetween.size()) : bad);
}

// An unknown option of a command that takes keys of a recipe may be such a key, of other tools too.
std::string how_to_set(const std::string& word, const std::vector<std::string>& options) {
  if (!word.starts_with("--") || std::find(options.begin(), options.end(), "--set") == options.end())
    return "";
  std::string key = word.substr(2, word.find('=') - 2);
  std::replace(key.begin(), key.end(), '-', '_');
  return formatted("; a key of the recipe is set by --set {}=VALUE", key);
}

std::string command_problem(const CLI::App& app, const HelpCommand& command, const CLI::Error& error) {
  if (is(error, CLI::ExitCodes::ExtrasError)) {
    const std::string word = unknown_word(app);
    const std::vector<std::string> options = option_names(command);
    if (word.starts_with('-'))
      return formatted("there is no option '{}'{}", word,
                       did_you_mean(word, options, how_to_set(word, options)));
    for (const char* option : {"--prompt", "--text"})
      if (std::find(options.begin(), options.end(), option) != options.end())
        return formatted("'{}' is one argument too many: a text is given with {}", word, option);
    return formatted("'{}' is one argument too many", word);
  }
  if (is(error, CLI::ExitCodes::ConversionError)) return unread_value(error.what());
  return is(error, CLI::ExitCodes::RequiredError) ? missing(command, error.what()) : error.what();
}

// The program's name alone prints where to begin.
constexpr const char* kFirstSteps =
    "error: a command is missing. The usual order is\n"
    "  plimsoll init MODEL DATA        writes a recipe for a model and rows\n"
    "  plimsoll preview recipe.yaml    shows the rows as the model reads them\n"
    "  plimsoll plan recipe.yaml       says what the run takes, before it starts\n"
    "  plimsoll train recipe.yaml      runs it\n"
    "  plimsoll chat RUN               talks to the model it made\n"
    "plimsoll --help lists all commands, plimsoll COMMAND --help their options\n";

std::string usage_text(const CLI::App* app, const CLI::Error& error) {
  if (app->get_subcommands().empty() && is(error, CLI::ExitCodes::RequiredError) &&
      unknown_word(*app).empty())
    return kFirstSteps;
  const CLI::App* chosen = app;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  const HelpCommand command = read_command(*chosen);
  const bool group = !command.commands.empty();
  const std::string problem =
      group ? program_problem(*app, command, error) : command_problem(*app, command, error);
  return formatted("error: {}{}\n  {}{}", chosen == app ? "" : command.name + ": ", printable(problem),
                   command.title(), group ? " --help lists the commands\n" : " --help lists its options\n");
}

}  // namespace

void use_usage_text(CLI::App& app) { app.failure_message(usage_text); }

namespace {

CLI::Validator number(std::function<bool(double)> is_good, std::string expected) {
  return {[is_good = std::move(is_good), expected = std::move(expected)](std::string& text) {
            if (const double value = number_of(text); std::isfinite(value) && is_good(value))
              return std::string();
            return formatted("expected a number {}, found '{}'", expected, text);
          },
          "", ""};
}

std::string number_text(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace

CLI::Validator at_least(int64_t least) {
  return number([least](double value) { return value >= static_cast<double>(least); },
                formatted("from {} on", least));
}

CLI::Validator between(double least, double most) {
  return number([least, most](double value) { return value >= least && value <= most; },
                formatted("from {} to {}", number_text(least), number_text(most)));
}

CLI::Validator share() { return between(0, 1); }

CLI::Validator above_zero() {
  return number([](double value) { return value > 0; }, "above 0");
}

}  // namespace plimsoll
