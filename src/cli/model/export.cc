#include "tools/export.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_ending.h"
#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/shell_word.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/model/answer_arguments.h"
#include "cli/run_result.h"
#include "cli/usage_text.h"
#include "recipe/hub.h"
#include "report/progress.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCheckedRows = 64;

struct ExportArguments {
  ExportOptions options;
  AnswerArguments shared;
  std::string to, type, into, out;
};

void finish(ExportArguments& arguments) {
  ExportOptions& options = arguments.options;
  arguments.shared.finish(options);
  options.to = arguments.to == "gguf"     ? ExportTo::gguf
               : arguments.to == "ollama" ? ExportTo::ollama
               : arguments.to == "vllm"   ? ExportTo::vllm
                                          : ExportTo::merged;
  options.kind = gguf_kind_of(arguments.type);
  if (!arguments.into.empty()) options.into = arguments.into == "base" ? MergeInto::base : MergeInto::trained;
  if (!options.limit) options.limit = kCheckedRows;
  // runs/first/ and runs/first are one run.
  std::string run = options.folder.string();
  while (run.size() > 1 && run.ends_with('/')) run.pop_back();
  options.folder = model_folder(run);
  if (const std::string ending = ending_of(arguments.out); ending == ".gguf" || ending == ".safetensors") {
    const std::string folder = fs::path(arguments.out).replace_extension().string();
    throw UsageError(
        formatted("export: --out is the folder that is made, and {} is a file's name; write --out {}",
                  arguments.out, quoted(folder)));
  }
  options.target = arguments.out.empty() ? formatted("{}-{}", run, arguments.to) : arguments.out;
}

nlohmann::ordered_json json_of(const ExportOptions& options, const ExportResult& result) {
  const LossCheck& check = result.check;
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const ExportedFile& file : result.files) files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  nlohmann::ordered_json json = {{"out", options.target.string()},
                                 {"files", files},
                                 {"bytes", result.bytes},
                                 {"rows", check.rows},
                                 {"target_tokens", check.tokens},
                                 {"loss_of_run", check.run},
                                 {"loss_of_export", check.exported},
                                 {"mean_difference", check.difference},
                                 {"largest_difference_of_a_row", check.largest},
                                 {"tolerance", check.tolerance},
                                 {"device", result.device},
                                 {"notes", result.notes},
                                 {"next", result.next}};
  if (result.over_quantised) json[over_key(result)] = *result.over_quantised;
  return json;
}

void print_text(const ExportOptions& options, const ExportResult& result) {
  const LossCheck& check = result.check;
  print(formatted("export  {} · {}\n", printable(options.target.string()), format_bytes(result.bytes)));
  if (result.over_quantised)
    print(
        formatted("base    loss {} over the {}-bit weights that it was trained on, {} over the base's own\n",
                  format_number("%.6f", *result.over_quantised), bits_of(result.format),
                  format_number("%.6f", check.run)));
  print(formatted("check   loss {} of the run, {} of the export\n", format_number("%.6f", check.run),
                  format_number("%.6f", check.exported)));
  // The loss of pairs, rewards and classes is a mean over rows, which are counted as tokens.
  const bool by_row = check.tokens == check.rows;
  print(formatted("        {}{}{}; difference {} a {} (at most {})\n", format_count(check.rows),
                  check.rows == 1 ? " row" : " rows",
                  by_row ? "" : formatted(", {} target tokens", format_count(check.tokens)),
                  format_number("%.2g", check.difference), by_row ? "row" : "token",
                  format_number("%.3g", check.tolerance)));
  for (const std::string& note : result.notes) print(formatted("note    {}\n", note));
  for (const std::string& command : result.next) print(formatted("next    {}\n", printable(command)));
}

ExitCode run(ExportArguments& arguments) {
  finish(arguments);
  // A log of the whole command is four lines; a terminal also shows what it is at.
  const bool shows = !arguments.shared.json() && screen_of(2).is_terminal;
  Progress progress(shows ? LogLevel::info : LogLevel::error, 1);
  arguments.options.observer = &progress;
  const ExportResult result = export_run(arguments.options);
  if (arguments.shared.json())
    print(json_text(json_of(arguments.options, result)));
  else
    print_text(arguments.options, result);
  return ExitCode::ok;
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ExportArguments>();
  ExportOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "export", "make a finished run into what others serve, and check that it does the same");
  command->add_option("run", options.folder, "a finished run, or a PEFT or model folder")
      ->required()
      ->type_name("RUN");
  command
      ->add_option(
          "--to", arguments->to,
          "merged: a Hugging Face folder; gguf: one file for llama.cpp; ollama: that with a Modelfile; vllm: an "
          "adapter that vLLM serves, or a whole model")
      ->required()
      ->check(CLI::IsMember({"merged", "gguf", "ollama", "vllm"}));
  command->add_option("--out", arguments->out, "new folder; by default RUN-gguf and so on")
      ->type_name("FOLDER");
  command->add_option("--type", arguments->type, "data type of the weights; by default as they are stored")
      ->check(CLI::IsMember(gguf_kind_names()));
  command
      ->add_option(
          "--into", arguments->into,
          "what an adapter is merged into. trained: the weights that it was trained over, of QLoRA those in 4 or "
          "8 bits; base: the base's own. By default trained")
      ->check(CLI::IsMember({"trained", "base"}));
  command
      ->add_option("--rows,--data", options.data, "rows to check with; by default the run's evaluation data")
      ->type_name("FILE");
  AnswerArguments::add_sets(*command, options.sets);
  command->add_option("--limit", options.limit, "the first rows only; by default 64")->check(at_least(1));
  command
      ->add_option("--tolerance", options.tolerance,
                   "largest mean difference of a row's loss per token; by default what rounding explains")
      ->check(CLI::Range(0.0, 100.0));
  arguments->shared.add_machine(*command, options);
  arguments->shared.add_json(*command);
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
