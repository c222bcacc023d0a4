#include "cli/help.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/strings.h"
#include "cli/pages.h"

namespace plimsoll {
namespace {

// Columns that choices may take next to an option's name; longer lists stand in its explanation.
constexpr size_t kWidestChoices = 60;

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// CLI11 names a value by its type and what checks it: "TEXT:{fp32,bf16}", "INT:INT in [1 - 16]", "FILE".
void read_value(const std::string& type, HelpOption& option) {
  const size_t colon = type.find(':');
  const std::string check = colon == std::string::npos ? "" : type.substr(colon + 1);
  // A colon without such a check belongs to the value's name: "FILE:KEY=VALUE".
  const bool is_check = check.starts_with('{') || check.find(' ') != std::string::npos;
  option.value = is_check ? type.substr(0, colon) : type;
  if (check.size() < 2 || check.front() != '{' || check.back() != '}') return;
  option.choices = split(std::string_view(check).substr(1, check.size() - 2), ',');
  const std::string all = join(option.choices, "|");
  option.value = all.size() <= kWidestChoices ? all : "NAME";
}

// Choices that the left column does not name.
bool choices_are_explained(const HelpOption& option) {
  return !option.choices.empty() && (option.argument || option.value == "NAME");
}

HelpOption read_option(const CLI::Option& declared) {
  HelpOption option;
  option.argument = declared.get_positional();
  if (option.argument) {
    option.names = {upper(declared.get_name(true))};
  } else {
    for (const std::string& name : declared.get_snames()) option.names.push_back("-" + name);
    for (const std::string& name : declared.get_lnames()) option.names.push_back("--" + name);
  }
  if (declared.get_type_size() > 0) {
    read_value(declared.get_type_name(), option);
    option.otherwise = declared.get_default_str();
  }
  option.meaning = declared.get_description();
  option.required = declared.get_required();
  option.repeats = declared.get_expected_max() > 1;
  return option;
}

std::string left_column(const HelpOption& option) {
  std::string text = join(option.names, ", ");
  if (!option.argument && !option.value.empty()) text += " " + option.value;
  return text + (option.repeats ? " ..." : "");
}

// All choices, or the first of so many that they would fill a screen: its explanation says where all are.
std::string some_of(const std::vector<std::string>& choices) {
  constexpr size_t kMost = 40, kShown = 6;
  if (choices.size() <= kMost) return join(choices, ", ");
  return formatted("{} and {} more", join(std::vector(choices.begin(), choices.begin() + kShown), ", "),
                   choices.size() - kShown);
}

std::string explained(const HelpOption& option) {
  std::string text = option.meaning;
  if (choices_are_explained(option)) text += formatted(" ({})", some_of(option.choices));
  if (!option.otherwise.empty() && option.otherwise != "\"\"") text += formatted(" [{}]", option.otherwise);
  return text;
}

std::string synopsis(const HelpCommand& command) {
  std::string text = command.title();
  if (!command.commands.empty()) return text + " COMMAND [OPTIONS]";
  for (const HelpOption& option : command.options) {
    if (!option.argument) continue;
    text += option.required ? " " + option.names.front() : formatted(" [{}]", option.names.front());
  }
  for (const HelpOption& option : command.options)
    if (option.required && !option.argument) text += formatted(" {} {}", option.names.back(), option.value);
  return text + " [OPTIONS]";
}

// A heading and what stands below it: paragraphs, or pairs of a term and its meaning.
struct Section {
  std::string title;
  std::vector<std::string> paragraphs;
  std::vector<std::pair<std::string, std::string>> terms;
};

Section options_section(const HelpCommand& command, bool arguments) {
  Section section{arguments ? "ARGUMENTS" : "OPTIONS", {}, {}};
  for (const HelpOption& option : command.options)
    if (option.argument == arguments) section.terms.emplace_back(left_column(option), explained(option));
  return section;
}

std::vector<std::string> paragraphs_of(std::string_view text) {
  std::vector<std::string> paragraphs;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("\n\n", at), text.size());
    paragraphs.emplace_back(text.substr(at, end - at));
    at = end + 2;
  }
  return paragraphs;
}

std::vector<Section> sections_of(const HelpCommand& command) {
  std::vector<Section> sections = {{"NAME", {formatted("{} - {}", command.title(), command.summary)}, {}},
                                   {"SYNOPSIS", {synopsis(command)}, {}}};
  const CommandPage* page = find_page(command.name);
  if (page != nullptr) sections.push_back({"DESCRIPTION", paragraphs_of(page->description), {}});
  Section commands{"COMMANDS", {}, {}};
  for (const HelpCommand& one : command.commands) commands.terms.emplace_back(one.last_name(), one.summary);
  sections.push_back(std::move(commands));
  for (const bool arguments : {true, false}) sections.push_back(options_section(command, arguments));
  if (page != nullptr) {
    Section examples{"EXAMPLES", {}, {}};
    for (const CommandExample& example : page->examples)
      examples.terms.emplace_back(example.line, example.meaning);
    sections.push_back(std::move(examples));
    Section exits{"EXIT CODES", {}, {}};
    std::vector<int> codes = {0, 1, 2};
    codes.insert(codes.end(), page->exits.begin(), page->exits.end());
    for (const int code : codes) exits.terms.emplace_back(std::to_string(code), exit_meaning(code));
    sections.push_back(std::move(exits));
    std::string more = std::string(page->document);
    if (command.name.empty()) more = "plimsoll COMMAND --help, " + more;
    sections.push_back({"SEE ALSO", {more}, {}});
  }
  std::erase_if(sections, [](const Section& s) { return s.paragraphs.empty() && s.terms.empty(); });
  return sections;
}

// Terms in a column where they are short, else each above its meaning.
std::string terms_text(const Section& section, size_t width) {
  constexpr size_t kWidestColumn = 26;
  size_t column = 0;
  for (const auto& [term, meaning] : section.terms)
    if (term.size() <= kWidestColumn) column = std::max(column, term.size());
  std::string text;
  for (const auto& [term, meaning] : section.terms) {
    const bool beside = term.size() <= column;
    const std::string indent(2 + (column > 0 ? column + 2 : 4), ' ');
    text += "  " + term;
    text += beside ? std::string(column - term.size() + 2, ' ') : "\n" + indent;
    text += wrap(meaning, indent, width) + "\n";
  }
  return text;
}

size_t terminal_width() {
  constexpr size_t kWidest = 100;
  return std::min(output_columns(), kWidest);
}

std::string roff(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else if (c == '"') {
      escaped += "\\(dq";  // a plain one groups words
    } else {
      if (escaped.empty() && (c == '.' || c == '\'')) escaped += "\\&";
      escaped += c;
    }
  }
  return escaped;
}

class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    return help_text(read_command(*app), terminal_width());
  }
};

}  // namespace

std::vector<std::string> option_names(const HelpCommand& command) {
  std::vector<std::string> names;
  for (const HelpOption& option : command.options)
    if (!option.argument) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

HelpCommand read_command(const CLI::App& app) {
  HelpCommand command;
  for (const CLI::App* one = &app; one->get_parent() != nullptr; one = one->get_parent())
    command.name = one->get_name() + (command.name.empty() ? "" : " " + command.name);
  command.summary = app.get_description();
  for (const bool arguments : {true, false})
    for (const CLI::Option* option : app.get_options())
      if (option->get_positional() == arguments && !option->get_group().empty())
        command.options.push_back(read_option(*option));
  for (const CLI::App* one : app.get_subcommands({}))
    if (!one->get_group().empty()) command.commands.push_back(read_command(*one));
  return command;
}

std::string help_text(const HelpCommand& command, size_t width) {
  std::string text;
  for (const Section& section : sections_of(command)) {
    if (!text.empty()) text += "\n";
    text += section.title + "\n";
    for (size_t i = 0; i < section.paragraphs.size(); ++i)
      text += formatted("{}{}\n", i > 0 ? "\n  " : "  ", wrap(section.paragraphs[i], "  ", width));
    text += terms_text(section, width);
  }
  return text;
}

std::string manual_page(const HelpCommand& command) {
  const std::string name = command.name.empty() ? "plimsoll" : "plimsoll-" + command.name;
  std::string text = formatted(".TH {} 1 \"\" \"plimsoll " PLIMSOLL_VERSION "\"\n", upper(name));
  for (const Section& section : sections_of(command)) {
    text += formatted(".SH \"{}\"\n", section.title);
    if (section.title == "NAME") {
      text += roff(formatted("{} - {}", name, command.summary)) + "\n";
      continue;
    }
    for (size_t i = 0; i < section.paragraphs.size(); ++i)
      text += formatted("{}{}\n", i > 0 ? ".PP\n" : "", roff(section.paragraphs[i]));
    for (const auto& [term, meaning] : section.terms)
      text += formatted(".TP\n.B {}\n{}\n", roff(term), roff(meaning));
  }
  return text;
}

void print_help(const std::string& text) {
  std::vector<StyledText> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const bool is_title = std::isupper(static_cast<unsigned char>(text[at])) != 0;
    lines.push_back({text.substr(at, end - at), is_title ? "1" : nullptr});
    at = end;
  }
  print_styled(lines);
}

void use_help_text(CLI::App& app) { app.formatter(std::make_shared<HelpFormatter>()); }

}  // namespace plimsoll
