#include "tools/merge.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/print.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/run_result.h"
#include "recipe/hub.h"

namespace plimsoll {
namespace {

struct MergeArguments {
  MergeOptions options;
  bool json = false;
};

ExitCode run(const MergeArguments& arguments) {
  MergeOptions options = arguments.options;
  options.adapter = model_folder(options.adapter);
  if (options.base) options.base = model_folder(*options.base);
  require_result(options.adapter);
  if (options.base) require_result(*options.base);
  const MergeResult result = merge(options);
  if (arguments.json) {
    const nlohmann::ordered_json json = {{"base", result.base.string()},
                                         {"out", arguments.options.out.string()},
                                         {"merged_weights", result.merged},
                                         {"tensors", result.tensors},
                                         {"bytes", result.bytes}};
    print(json_text(json));
  } else {
    print(formatted("merged  {} of {} tensors · {} · {}\n", format_count(result.merged),
                    format_count(result.tensors), format_bytes(result.bytes),
                    printable(arguments.options.out.string())));
  }
  return ExitCode::ok;
}

}  // namespace

void add_merge(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<MergeArguments>();
  CLI::App* command = app.add_subcommand("merge", "merge an adapter into its base model");
  command->add_option("adapter", arguments->options.adapter, "PEFT adapter folder, or a finished LoRA run")
      ->required()
      ->type_name("FOLDER");
  command
      ->add_option("--base", arguments->options.base,
                   "base model folder; by default the one named in adapter_config.json")
      ->type_name("FOLDER");
  command->add_option("--out", arguments->options.out, "new model folder")->required()->type_name("FOLDER");
  command->add_flag("--json", arguments->json, "JSON output");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
