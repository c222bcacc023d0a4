#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/print.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/run_result.h"
#include "recipe/hub.h"
#include "tools/convert_gguf.h"
#include "tools/convert_model.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

struct ConvertArguments {
  ConvertOptions options;
  std::string dtype, shard_size, to = "folder";
  bool json = false;
};

DType read_dtype(const std::string& text) {
  if (text == "bf16") return DType::bf16;
  return text == "f16" ? DType::f16 : DType::f32;
}

ExitCode run_gguf(const ConvertArguments& arguments) {
  if (!arguments.shard_size.empty())
    throw UsageError("convert: --shard-size cuts folders; a GGUF is one file");
  const fs::path& out = arguments.options.out;
  const GgufResult result =
      convert_to_gguf({model_folder(arguments.options.folder), out, gguf_kind_of(arguments.dtype)});
  if (arguments.json) {
    const nlohmann::ordered_json json = {{"out", out.string()},
                                         {"tensors", result.tensors},
                                         {"bytes", result.bytes},
                                         {"notes", result.notes},
                                         {"card", result.card}};
    print(json_text(json));
    return ExitCode::ok;
  }
  print(formatted("converted  {} tensors · {} · {}\n", format_count(result.tensors),
                  format_bytes(result.bytes), printable(out.string())));
  if (result.card) print(formatted("card       {}\n", printable((out.parent_path() / "README.md").string())));
  for (const std::string& note : result.notes) print(formatted("note       {}\n", note));
  return ExitCode::ok;
}

ExitCode run(ConvertArguments& arguments) {
  require_result(arguments.options.folder);
  if (arguments.to == "gguf") return run_gguf(arguments);
  if (arguments.options.out.extension() == ".gguf")
    throw UsageError(
        formatted("convert: {} is called as a GGUF file is: say --to gguf", arguments.options.out.string()));
  if (const auto kind = gguf_kind_of(arguments.dtype); kind && is_quantised(*kind))
    throw UsageError(formatted("convert: --dtype {} is for --to gguf", arguments.dtype));
  ConvertOptions& options = arguments.options;
  options.folder = model_folder(options.folder);
  if (!arguments.dtype.empty()) options.dtype = read_dtype(arguments.dtype);
  if (!arguments.shard_size.empty()) {
    options.shard_bytes = parse_bytes(arguments.shard_size, "--shard-size");
    if (*options.shard_bytes < 1) throw UsageError("--shard-size: at least one byte is needed");
  }
  const ConvertResult result = convert_model(options);
  if (arguments.json) {
    const nlohmann::ordered_json json = {{"out", options.out.string()},         {"tensors", result.tensors},
                                         {"converted", result.converted},       {"files", result.files},
                                         {"bytes_before", result.bytes_before}, {"bytes", result.bytes}};
    print(json_text(json));
    return ExitCode::ok;
  }
  print(formatted("converted  {} of {} tensors · {} to {} in {} · {}\n", format_count(result.converted),
                  format_count(result.tensors), format_bytes(result.bytes_before), format_bytes(result.bytes),
                  result.files == 1 ? "1 file" : format_count(result.files) + " files",
                  printable(options.out.string())));
  return ExitCode::ok;
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command = app.add_subcommand("convert", "change data type, shards or format of a model folder");
  command
      ->add_option("folder", arguments->options.folder,
                   "model folder; merge an adapter into it first (plimsoll merge)")
      ->required()
      ->type_name("FOLDER");
  command->add_option("--out", arguments->options.out, "new folder, or new file")
      ->required()
      ->type_name("PATH");
  command
      ->add_option("--to", arguments->to, "folder: as Hugging Face writes it; gguf: one file for llama.cpp")
      ->check(CLI::IsMember({"folder", "gguf"}))
      ->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "data type of the weights; by default unchanged")
      ->check(CLI::IsMember(gguf_kind_names()));
  command
      ->add_option("--shard-size", arguments->shard_size,
                   "maximum bytes of tensors per file; by default as in the input")
      ->type_name("SIZE");
  command->add_flag("--json", arguments->json, "JSON output");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
