#include "cli/usage_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <utility>

#include "base/format.h"
#include "base/strings.h"
#include "cli/help.h"

namespace plimsoll {
namespace {

// By the exit code: some of these errors carry the command's name instead of their own.
bool is(const CLI::Error& error, CLI::ExitCodes kind) {
  return error.get_exit_code() == static_cast<int>(kind);
}

// The first word that nothing took; an option goes before what was meant as its value. Options that are
// written --name=value are known by their name.
std::string unknown_word(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(true);
  for (const std::string& word : words)
    if (word.starts_with('-')) return word.substr(0, word.find('='));
  return words.empty() ? "" : words.front();
}

std::string program_problem(const CLI::App& app, const HelpCommand& program, const CLI::Error& error) {
  const std::string word = unknown_word(app);
  if (word.empty()) return is(error, CLI::ExitCodes::RequiredError) ? "a command is missing" : error.what();
  if (word.starts_with('-'))
    return formatted("there is no option '{}'{}", word, did_you_mean(word, option_names(program)));
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
  return formatted("error: {}{}\n  {}{}", chosen == app ? "" : command.name + ": ", problem, command.title(),
                   group ? " --help lists the commands\n" : " --help lists its options\n");
}

}  // namespace

void use_usage_text(CLI::App& app) { app.failure_message(usage_text); }

namespace {

// NaN for what is no number.
double number_of(const std::string& text) {
  double value = NAN;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : NAN;
}

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
