#include <algorithm>

#include "base/format.h"
#include "base/print.h"
#include "base/strings.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/llms.h"
#include "device/catalogue.h"
#include "recipe/option.h"

namespace plimsoll {
namespace {

std::vector<std::string> command_names(const HelpCommand& program) {
  std::vector<std::string> names;
  for (const HelpCommand& command : program.commands) names.push_back(command.name);
  return names;
}

// For --set: "method.r=", ...
std::vector<std::string> recipe_keys() {
  std::vector<std::string> keys;
  for (const Option& option : options()) keys.push_back(option.key + "=");
  return keys;
}

// "a|b" by its bars, but for those of a token like <|im_end|> in an example.
std::vector<std::string> alternatives(const std::string& values) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < values.size(); ++i) {
    const bool of_token = values[i] == '|' && ((i > 0 && values[i - 1] == '<') ||
                                               (i + 1 < values.size() && values[i + 1] == '>'));
    if (values[i] != '|' || of_token)
      words.back() += values[i];
    else
      words.emplace_back();
  }
  return words;
}

// Values of keys with one of a few words: "method.type=lora", ...
std::vector<std::string> recipe_values() {
  std::vector<std::string> values;
  for (const Option& option : options()) {
    const bool is_switch = option.values == "true or false";
    for (const std::string& one : alternatives(is_switch ? "true|false" : option.values)) {
      const std::string word(trim(one));
      if (word != option.values && word.find_first_of(" :'") == std::string::npos)
        values.push_back(formatted("{}={}", option.key, word));
    }
  }
  return values;
}

// Words that an option takes: all of them, or those that most people mean.
std::vector<std::string> words_of(const HelpOption& option) {
  const std::string& name = option.names.back();
  if (!option.choices.empty()) return option.choices;
  if (name == "--device") return {"auto", "cpu", "cuda", "card"};
  if (name == "--max-isa") return {"avx2", "avx512", "avx512-bf16", "amx"};
  if (name != "--gpu") return {};
  std::vector<std::string> cards;
  for (const Card& card : all_cards()) {
    std::string words = full_name(card);
    std::ranges::replace(words, ' ', '-');  // one word, which means the same
    cards.push_back(words);
  }
  return cards;
}

bool takes_key(const HelpOption& option) { return option.value == "KEY=VALUE"; }

// ---- bash

std::string bash_value(const HelpOption& option) {
  const auto words = [](const std::vector<std::string>& list) {
    return formatted("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", join(list, " "));
  };
  if (takes_key(option)) return "_plimsoll_key \"$cur\"";
  if (const auto some = words_of(option); !some.empty()) return words(some);
  if (option.names_folder()) return "COMPREPLY=($(compgen -d -- \"$cur\")); compopt -o filenames";
  if (option.names_file()) return "COMPREPLY=($(compgen -f -- \"$cur\")); compopt -o filenames";
  return "COMPREPLY=()";
}

std::string bash_command(const HelpCommand& command) {
  std::string text = formatted("    {})\n      case \"$prev\" in\n", command.name);
  std::string argument = "COMPREPLY=()";
  for (const HelpOption& option : command.options) {
    if (option.argument) argument = bash_value(option);
    if (option.argument || option.value.empty()) continue;
    text += formatted("        {}) {}; return ;;\n", join(option.names, "|"), bash_value(option));
  }
  text += formatted(
      "      esac\n      if [[ $cur == -* ]]; then\n        COMPREPLY=($(compgen -W '{}' -- "
      "\"$cur\"))\n      else\n        {}\n      fi ;;\n",
      join(option_names(command), " "), argument);
  return text;
}

// The shell's command that completes `word` by one of some words.
std::string bash_reply(const std::vector<std::string>& words, const char* word) {
  return formatted("    COMPREPLY=($(compgen -W '{}' -- \"{}\"))\n", join(words, " "), word);
}

// Words are cut at blanks alone, so that key=value stays one word.
std::string bash_script(const HelpCommand& program) {
  std::string text =
      "# bash completion of plimsoll\n"
      // Readline replaces what stands behind the last = where that breaks words.
      "_plimsoll_key() {\n"
      "  if [[ $1 == *=* ]]; then\n";
  text += bash_reply(recipe_values(), "$1");
  text +=
      "    [[ $COMP_WORDBREAKS == *=* ]] && COMPREPLY=(\"${COMPREPLY[@]#*=}\")\n"
      "  else\n";
  text += bash_reply(recipe_keys(), "$1");
  text +=
      "    compopt -o nospace\n"
      "  fi\n"
      "}\n"
      "_plimsoll() {\n"
      "  local line=${COMP_LINE:0:COMP_POINT} words\n"
      "  read -ra words <<<\"$line\"\n"
      "  [[ $line == *[[:space:]] ]] && words+=('')\n"
      "  local last=$((${#words[@]} - 1))\n"
      "  local cur=${words[last]} prev=${words[last - 1]}\n"
      "  COMPREPLY=()\n"
      "  if ((last == 1)); then\n";
  std::vector<std::string> first = command_names(program);
  const std::vector<std::string> options = option_names(program);
  first.insert(first.end(), options.begin(), options.end());
  text += bash_reply(first, "$cur");
  text +=
      "    return\n"
      "  fi\n"
      "  case ${words[1]} in\n";
  for (const HelpCommand& command : program.commands) text += bash_command(command);
  return text + "  esac\n}\ncomplete -F _plimsoll plimsoll plimsoll-ml\n";
}

// ---- zsh

std::string zsh_escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\'') {
      escaped += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string zsh_value(const HelpOption& option) {
  if (takes_key(option))  // no blank behind a key
    return formatted(
        "{{if [[ $words[CURRENT] == *=* ]]; then compadd -- {}; else compadd -S \"\" -- {}; fi}}",
        join(recipe_values(), " "), join(recipe_keys(), " "));
  if (const auto words = words_of(option); !words.empty()) return formatted("({})", join(words, " "));
  if (option.names_folder()) return "_files -/";
  return option.names_file() ? "_files" : " ";
}

std::string zsh_command(const HelpCommand& command) {
  std::string text = formatted("    {})\n      _arguments", command.name);
  int position = 0;
  for (const HelpOption& option : command.options) {
    if (option.argument) {
      const std::string place = option.repeats ? "*" : std::to_string(++position);
      text +=
          formatted(" \\\n        '{}:{}:{}'", place, zsh_escaped(option.names.front()), zsh_value(option));
      continue;
    }
    for (const std::string& name : option.names) {
      text +=
          formatted(" \\\n        '{}{}[{}]", option.repeats ? "*" : "", name, zsh_escaped(option.meaning));
      if (!option.value.empty()) text += formatted(":{}:{}", zsh_escaped(option.value), zsh_value(option));
      text += "'";
    }
  }
  return text + " ;;\n";
}

std::string zsh_script(const HelpCommand& program) {
  std::string text =
      "#compdef plimsoll plimsoll-ml\n"
      "_plimsoll() {\n"
      "  local -a commands\n"
      "  commands=(\n";
  for (const HelpCommand& command : program.commands)
    text += formatted("    '{}:{}'\n", command.name, zsh_escaped(command.summary));
  text +=
      "  )\n"
      "  if ((CURRENT == 2)); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  ((CURRENT--))\n"
      "  case $command in\n";
  for (const HelpCommand& command : program.commands) text += zsh_command(command);
  return text +
         "  esac\n}\n[[ $funcstack[1] == _plimsoll ]] && _plimsoll \"$@\" || compdef _plimsoll plimsoll "
         "plimsoll-ml\n";
}

// ---- fish

std::string fish_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

std::string fish_value(const HelpOption& option) {
  if (takes_key(option))
    return " -x -a " + fish_quoted(formatted("{} {}", join(recipe_keys(), " "), join(recipe_values(), " ")));
  if (const auto words = words_of(option); !words.empty()) return " -x -a " + fish_quoted(join(words, " "));
  if (option.names_folder()) return " -x -a '(__fish_complete_directories)'";
  return option.names_file() ? " -r -F" : " -x";
}

std::string fish_script(const HelpCommand& program) {
  std::string text =
      "# fish completion of plimsoll\n"
      "complete -c plimsoll-ml -w plimsoll\n"
      "complete -c plimsoll -f\n"
      "complete -c plimsoll -n __fish_use_subcommand -l help -d 'print the manual'\n"
      "complete -c plimsoll -n __fish_use_subcommand -l version -d 'print the version'\n";
  for (const HelpCommand& command : program.commands) {
    text += formatted("complete -c plimsoll -n __fish_use_subcommand -a {} -d {}\n", command.name,
                      fish_quoted(command.summary));
    const std::string here =
        formatted("complete -c plimsoll -n '__fish_seen_subcommand_from {}'", command.name);
    for (const HelpOption& option : command.options) {
      if (option.argument) {
        text += formatted("{}{}\n", here,
                          option.choices.empty() ? " -F" : " -a " + fish_quoted(join(option.choices, " ")));
        continue;
      }
      text += here;
      for (const std::string& name : option.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      text += formatted("{} -d {}\n", option.value.empty() ? "" : fish_value(option),
                        fish_quoted(option.meaning));
    }
  }
  return text;
}

}  // namespace

// A group (queue) as one command: its argument is the name of one of its own, its options are theirs.
HelpCommand as_one_command(HelpCommand group) {
  HelpOption which;
  which.names = {"COMMAND"};
  which.argument = true;
  for (const HelpCommand& command : group.commands) {
    which.choices.push_back(command.last_name());
    for (const HelpOption& option : command.options) {
      const std::vector<std::string> known = option_names(group);
      if (!option.argument && std::find(known.begin(), known.end(), option.names.back()) == known.end())
        group.options.push_back(option);
    }
  }
  group.options.insert(group.options.begin(), which);
  return group;
}

std::string completion_script(HelpCommand program, const std::string& shell) {
  for (HelpCommand& command : program.commands)
    if (!command.commands.empty()) command = as_one_command(command);
  if (shell == "bash") return bash_script(program);
  return shell == "zsh" ? zsh_script(program) : fish_script(program);
}

void add_completion(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "shell completion script");
  command->add_option("shell", *shell, "the shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([shell, &app, &action] {
    action = [shell, &app] {
      print(completion_script(read_command(app), *shell));
      return ExitCode::ok;
    };
  });
}

void add_help(CLI::App& app, Action& action) {
  struct Arguments {
    std::string command;
    bool man = false, commands = false, llms = false, skill = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* help = app.add_subcommand("help", "the manual of a command");
  help->add_option("command", arguments->command, "the command; none: plimsoll itself");
  help->add_flag("--commands", arguments->commands, "only the names of all commands, one a line");
  help->add_flag("--llms", arguments->llms,
                 "all of it in one text of Markdown, for language models and other readers");
  help->add_flag("--skill", arguments->skill,
                 "the same in short as a skill file (SKILL.md) for language models that run commands");
  help->add_flag("--man", arguments->man, "as roff, for man(1)");
  help->callback([arguments, &app, &action] {
    action = [arguments, &app] {
      HelpCommand requested = read_command(app);
      if (arguments->commands) {
        print(join(command_names(requested), "\n") + "\n");
        return ExitCode::ok;
      }
      if (arguments->llms || arguments->skill) {
        print(arguments->llms ? llms_text(requested) : skill_text());
        return ExitCode::ok;
      }
      if (!arguments->command.empty()) {
        const std::vector<std::string> names = command_names(requested);
        const auto found = std::find(names.begin(), names.end(), arguments->command);
        if (found == names.end())
          throw UsageError(
              formatted("help: no command '{}'{}", arguments->command,
                        did_you_mean(arguments->command, names, "; plimsoll --help lists them")));
        requested = HelpCommand(requested.commands[static_cast<size_t>(found - names.begin())]);
      }
      const std::string text =
          arguments->man ? manual_page(requested)
                         : app.get_formatter()->make_help(
                               arguments->command.empty() ? &app : app.get_subcommand(arguments->command), "",
                               CLI::AppFormatMode::Normal);
      print(text);
      return ExitCode::ok;
    };
  });
}

}  // namespace plimsoll
