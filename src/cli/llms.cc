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

constexpr const char* kSkill = R"(---
name: plimsoll
description: >-
  Plan and run fine-tuning of language models (full, LoRA, QLoRA) inside a memory budget with the plimsoll command. Use
  it to find out whether a training fits a GPU or a machine, to write and run a recipe, to find out why a training ran
  out of memory, and to export what came of it.
---

# Plimsoll

## From the first command to the last

```sh
plimsoll fit qwen2.5-7b --json                # methods and lengths that fit; no download
plimsoll init models/qwen rows.jsonl          # writes recipe.yaml
plimsoll preview recipe.yaml --rows 3         # what the model reads, and which tokens are trained
plimsoll plan recipe.yaml --json              # peak memory; nothing is loaded
plimsoll train recipe.yaml --quiet --set output=runs/first --set data.eval=10% --set schedule.max_steps=4
plimsoll report runs/first --json             # loss, memory, state; also while it runs
plimsoll eval runs/first --json               # loss over the rows that were held out
plimsoll generate runs/first --prompt "Hello" --max-new-tokens 8 --json
plimsoll export runs/first --to merged --json # or gguf, ollama, vllm; checked
plimsoll doctor train.log --json              # why any program ran out of memory
```

## Rules

- Plan before you train. `feasible` is the verdict. Where it is false, each of `ways[].command` would fit: run one of
  these instead of guessing values.
- Use `--json`. Read the exit code first, then the last lines of standard error: they name the file, the line or the
  key, and what to do.
- A key of the recipe is set by `--set KEY=VALUE`. `plimsoll recipe --explain` lists all keys, `plimsoll help COMMAND`
  the options. Do not invent keys: an unknown one is refused with the nearest name.
- The batch size is the effective one. Micro-batches, activation checkpointing and offloading are planned and do not
  change the result: leave them out of the recipe.
- Stop a run with one SIGINT and wait: it saves and ends with 130. Never send a second signal. Continue with
  `plimsoll train RECIPE --resume`.
- A folder that has a run is not written over: `--resume`, `--overwrite` or another `output`.
- Only `plimsoll fetch` opens a connection. Ask before it downloads weights.
- Long runs: start them in the background and read `plimsoll report FOLDER --json`.
- The manual in one text: `plimsoll help --llms`.
)";

}  // namespace

std::string skill_text() {
  std::string text = kSkill;
  text += "\n## Exit codes\n\n";
  for (const int one : {0, 1, 2, 3, 4, 5, 130}) text += formatted("- {}: {}\n", one, exit_meaning(one));
  return text;
}

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
