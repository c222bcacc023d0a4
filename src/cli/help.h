// A command's options, arguments and texts, read from its declaration (CLI11) and its page (pages.h): the one
// source of --help, shell completion and manual pages.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace plimsoll {

struct HelpOption {
  std::vector<std::string> names;  // "-h", "--help"; of an argument its name in capitals
  std::string value;               // "FILE", "fp32|bf16"; empty for a flag
  std::string meaning;
  std::string otherwise;  // its default; empty: none
  bool argument = false;  // taken by position
  bool required = false;
  bool repeats = false;
  std::vector<std::string> choices;  // where only these are allowed

  [[nodiscard]] bool names_folder() const { return value == "FOLDER"; }
  // Completed as a file: values named FILE, and arguments without choices.
  [[nodiscard]] bool names_file() const { return value == "FILE" || (argument && choices.empty()); }
};

struct HelpCommand {
  std::string name;  // "" for the program itself, "queue add" for a command of a command
  std::string summary;
  std::vector<HelpOption> options;    // arguments first
  std::vector<HelpCommand> commands;  // of the program, or of a group: those that are not hidden

  [[nodiscard]] std::string last_name() const { return name.substr(name.rfind(' ') + 1); }
  [[nodiscard]] std::string title() const { return name.empty() ? "plimsoll" : "plimsoll " + name; }
};
// --name and the like, without the arguments.
std::vector<std::string> option_names(const HelpCommand& command);
HelpCommand read_command(const CLI::App& app);

// For a terminal of `width` columns.
std::string help_text(const HelpCommand& command, size_t width);
// Prints such a text, on a terminal with its headings in bold.
void print_help(const std::string& text);
// For man(1), in roff.
std::string manual_page(const HelpCommand& command);
// A script for "bash", "zsh" or "fish".
std::string completion_script(HelpCommand program, const std::string& shell);

// Makes --help print help_text. Before commands are added: they inherit it.
void use_help_text(CLI::App& app);

}  // namespace plimsoll
