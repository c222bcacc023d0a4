#include "train/generate.h"

#include <charconv>

#include "base/strings.h"
#include "cli/answer_arguments.h"
#include "cli/commands.h"
#include "cli/usage_text.h"

namespace plimsoll {
namespace {

struct GenerateArguments {
  GenerateOptions options;
  AnswerArguments shared;
};

// "1,2,3"
void append_ids(const std::string& text, std::vector<int32_t>& ids) {
  for (const std::string& part : split(text, ',')) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), id);
    if (error != std::errc() || end != part.data() + part.size() || id < 0)
      throw UsageError("--ids: '" + part + "' is no token id; write them as 1,2,3");
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
          "answer these token ids; prints ids")
      ->type_name("ID,ID,...");
  command
      .add_option(
          "--data", options.data,
          "answer the prompts (or conversations) of a file of rows; where it has responses, count the "
          "exact matches")
      ->type_name("FILE");
  command
      .add_option("--set", options.sets,
                  "key=value of a recipe that says how rows of --data are read, such as data.columns (may be "
                  "repeated)")
      ->type_name("KEY=VALUE");
  command.add_option("--limit", options.limit, "rows of --data")->check(at_least(1));
  command.add_option("--out", options.out, "write the answers here, as JSON lines")->type_name("FILE");
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand("generate", "answer prompts with a model or a finished run");
  arguments->shared.add_model(*command, arguments->options);
  add_questions(*command, arguments->options);
  AnswerArguments::add_template(*command, arguments->options);
  AnswerArguments::add_system(*command, arguments->options);
  arguments->shared.add_choices(*command, arguments->options);
  arguments->shared.add_machine(*command, arguments->options);
  AnswerArguments::add_json(*command, arguments->options);
  command->callback([arguments, &action] {
    action = [arguments] {
      arguments->shared.finish(arguments->options);
      return generate(arguments->options);
    };
  });
}

}  // namespace plimsoll
