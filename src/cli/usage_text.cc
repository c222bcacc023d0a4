#include "cli/usage_text.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include "base/strings.h"
#include "cli/help.h"

namespace plimsoll {
namespace {

// By the exit code: in place of their own name some of these errors carry that of the command.
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
    return "there is no option '" + word + "'" + did_you_mean(word, option_names(program));
  std::vector<std::string> names;
  for (const HelpCommand& one : program.commands) names.push_back(one.last_name());
  return "there is no command '" + word + "'" + did_you_mean(word, names);
}

// "recipe is required", as CLI11 says it, names an argument in small letters.
std::string missing(const HelpCommand& command, const std::string& words) {
  const std::string name = words.substr(0, words.find(' '));
  for (const HelpOption& option : command.options) {
    const std::string& shown = option.names.back();
    std::string small = shown;
    for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (small == name) return shown + " is missing: " + option.meaning;
  }
  return words;
}

std::string command_problem(const CLI::App& app, const HelpCommand& command, const CLI::Error& error) {
  if (is(error, CLI::ExitCodes::ExtrasError)) {
    const std::string word = unknown_word(app);
    if (word.starts_with('-'))
      return "there is no option '" + word + "'" + did_you_mean(word, option_names(command));
    return "'" + word + "' is one argument too many";
  }
  return is(error, CLI::ExitCodes::RequiredError) ? missing(command, error.what()) : error.what();
}

std::string usage_text(const CLI::App* app, const CLI::Error& error) {
  const CLI::App* chosen = app;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  const HelpCommand command = read_command(*chosen);
  const bool group = !command.commands.empty();
  const std::string problem =
      group ? program_problem(*app, command, error) : command_problem(*app, command, error);
  return "error: " + (chosen == app ? "" : command.name + ": ") + problem + "\n  " + command.title() +
         (group ? " --help lists the commands\n" : " --help lists its options\n");
}

}  // namespace

void use_usage_text(CLI::App& app) { app.failure_message(usage_text); }

CLI::Validator at_least(int64_t least) {
  return {[least](std::string& text) {
            double value = NAN;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool number = error == std::errc() && end == text.data() + text.size();
            if (number && std::isfinite(value) && value >= static_cast<double>(least)) return std::string();
            return "expected a number from " + std::to_string(least) + " on, found '" + text + "'";
          },
          "", ""};
}

CLI::Validator share() {
  return {[](std::string& text) {
            double value = NAN;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool number = error == std::errc() && end == text.data() + text.size();
            if (number && value >= 0.0 && value <= 1.0) return std::string();
            return "expected a number from 0 to 1, found '" + text + "'";
          },
          "", ""};
}

}  // namespace plimsoll
