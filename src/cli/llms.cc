#include "cli/llms.h"

#include "base/format.h"
#include "base/strings.h"
#include "cli/pages.h"

namespace plimsoll {
namespace {

constexpr const char* kRules =
    "# Plimsoll\n\n"
    "> A program for Linux that fine-tunes language models (full, LoRA, QLoRA) inside a memory budget: it plans a run "
    "to the byte before it starts, and then runs exactly that, or refuses with what is missing.\n\n"
    "## How to use it\n\n"
    "- Plan before you train: `plimsoll plan recipe.yaml --json`. `feasible` is the verdict, `ways[].command` is "
    "what would fit.\n"
    "- No file is needed for a first answer: `plimsoll fit qwen2.5-7b --json`.\n"
    "- Read the exit code, then the last lines of standard error. They name the file, line and key, and what to do.\n"
    "- Every key of a recipe can be set on the command line: `--set KEY=VALUE`; `plimsoll recipe --explain` lists "
    "them.\n"
    "- Stop a run with one SIGINT: it saves and ends with 130. A second one ends it at once, without saving.\n"
    "- Continue with `plimsoll train RECIPE --resume`; replace a run with `--overwrite`.\n"
    "- Watch a run: `--events FD` writes JSON lines (docs/reference/json.md); a recipe is read from standard input "
    "as `-`.\n"
    "- Only `plimsoll fetch` opens a connection.\n"
    "- From Python: `pip install` the wheel that `make wheel` writes, `import plimsoll_ml` (docs/howto/python.md).\n";

std::string code(std::string_view text) { return formatted("`{}`", text); }

std::string arguments_of(const HelpCommand& command) {
  std::string text = command.title();
  if (!command.commands.empty()) return text + " COMMAND";
  for (const HelpOption& option : command.options)
    if (option.argument)
      text +=
          option.required ? formatted(" {}", option.names.front()) : formatted(" [{}]", option.names.front());
  return text;
}

std::string command_lines(const HelpCommand& command) {
  std::string text = formatted("- {}: {}\n", code(arguments_of(command)), command.summary);
  if (!command.commands.empty()) {
    std::vector<std::string> names;
    for (const HelpCommand& one : command.commands) names.push_back(one.last_name());
    text += formatted("  - commands: {}\n", join(names, ", "));
  }
  if (const CommandPage* const page = find_page(command.name); page != nullptr)
    for (const CommandExample& example : page->examples)
      text += formatted("  - {}: {}\n", code(example.line), example.meaning);
  return text;
}

}  // namespace

std::string llms_text(const HelpCommand& program) {
  std::string text = kRules;
  text += "\n## Exit codes\n\n";
  for (const int one : {0, 1, 2, 3, 4, 5, 130}) text += formatted("- {}: {}\n", one, exit_meaning(one));
  text += "\n## Commands\n\n";
  for (const HelpCommand& command : program.commands) text += command_lines(command);
  text +=
      "\n## A recipe\n\n```yaml\n"
      "model: Qwen/Qwen2.5-0.5B        # a folder, or a name in the Hugging Face cache\n"
      "data: {train: rows.jsonl, max_length: 1024, eval: 2%}\n"
      "method: {type: lora, r: 16}     # full, lora, qlora\n"
      "batch: {effective: 16}\n"
      "optimizer: {name: adamw, lr: 2e-4}\n"
      "schedule: {epochs: 1, warmup: 3%}\n"
      "memory: 8GiB                    # a size, a share of what is free, or auto\n"
      "output: runs/first\n"
      "```\n\n## More\n\n"
      "- docs/reference/recipe.md: every key\n- docs/reference/json.md: every answer in JSON\n"
      "- docs/reference/supported.md: models, tasks, methods\n- docs/reference/exit-codes.md: messages\n"
      "- docs/howto/fit-into-memory.md: if it does not fit\n"
      "- docs/howto/other-tools.md: recipes of other tools that are read\n";
  return text;
}

}  // namespace plimsoll
