#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/file_ending.h"
#include "base/format.h"
#include "base/print.h"
#include "base/regular_file.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/model/describe.h"
#include "data/files/data_files.h"
#include "recipe/hub.h"
#include "runs/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {

void Description::add(std::string name, std::string text, nlohmann::ordered_json value) {
  facts.push_back({std::move(name), std::move(text), std::move(value)});
}

void Description::add_count(std::string name, int64_t count) {
  add(std::move(name), format_count(count), count);
}

namespace {

namespace fs = std::filesystem;

bool is_run(const fs::path& folder) {
  for (const char* name : {"run.json", "metrics.jsonl"})
    if (fs::exists(folder / name)) return true;
  return latest_checkpoint(folder).has_value();
}

// A .json file may be anything; in a folder it is no sign of data.
bool is_rows(const fs::path& path) { return is_data_file(path) && ending_of(unpacked_name(path)) != ".json"; }

bool holds_data(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_rows(entry.path())) return true;
  return false;
}

Description describe_folder(const fs::path& folder, bool tensors) {
  if (fs::exists(folder / "trainer_state.json")) return describe_checkpoint(folder, tensors);
  if (is_run(folder)) return describe_run(folder, tensors);
  if (fs::exists(folder / "adapter_config.json")) return describe_adapter(folder, tensors);
  if (fs::exists(folder / "config.json")) return describe_model(folder, tensors);
  if (const auto file = Tokenizer::find_file(folder)) return describe_tokenizer(*file);
  if (holds_data(folder)) return describe_data(folder);
  throw UsageError(
      folder.string() +
      ": is no model, adapter, run, checkpoint, tokenizer or folder of data (docs/howto/data.md)");
}

// Files of the `tokenizers` library name their added tokens among the first keys.
bool may_be_tokenizer(const fs::path& path) {
  return read_start(path, 4096).find("\"added_tokens\"") != std::string::npos;
}

void print_text(const Description& d, const fs::path& path) {
  print(formatted("{}  {}\n", d.kind, printable(path.string())));
  const size_t columns = std::min<size_t>(output_columns(), 100);
  size_t widest = 0;
  for (const Fact& fact : d.facts) widest = std::max(widest, fact.name.size());
  const std::string indent(widest + 4, ' ');
  for (const Fact& fact : d.facts)
    print(formatted("  {}{}{}\n", fact.name, std::string(widest - fact.name.size() + 2, ' '),
                    wrap(printable(fact.text), indent, columns)));
  for (const FactTable& table : d.tables) {
    TextTable rows(table.right);
    rows.add_row(table.columns);
    for (const auto& row : table.text) rows.add_row(row);
    print("\n" + rows.render("  ", output_columns()));
  }
}

void print_json(const Description& d, const fs::path& path) {
  nlohmann::ordered_json json = {{"kind", d.kind}, {"path", path.string()}};
  for (const Fact& fact : d.facts) {
    std::string key = fact.name;
    for (char& c : key)
      if (c == ' ' || c == '-' || c == '/') c = '_';
    json[key] = fact.value;
  }
  for (const FactTable& table : d.tables) {
    auto rows = nlohmann::ordered_json::array();
    for (const auto& values : table.values) {
      nlohmann::ordered_json row;
      for (size_t i = 0; i < values.size(); ++i) row[table.columns[i]] = values[i];
      rows.push_back(std::move(row));
    }
    json[table.name] = std::move(rows);
  }
  print(json_text(json));
}

struct InspectArguments {
  std::string path;
  bool tensors = false, json = false;
};

}  // namespace

Description describe(const fs::path& path, bool tensors) {
  if (!fs::exists(path)) throw UsageError(path.string() + ": no such file or folder");
  if (fs::is_directory(path)) return describe_folder(path, tensors);
  const std::string extension = ending_of(path);
  if (extension == ".safetensors") return describe_safetensors(path, tensors);
  if (is_rows(path)) return describe_data(path);
  if (path.filename() == "tokenizer.json" || extension == ".model") return describe_tokenizer(path);
  if (path.filename() == "config.json") return describe_model(path.parent_path(), tensors);
  if (extension == ".yaml" || extension == ".yml")
    throw UsageError(path.string() + ": is a recipe; `plimsoll recipe` and `plimsoll plan` explain it");
  if (extension == ".gguf")
    throw UsageError(
        path.string() +
        ": is a GGUF file, which llama.cpp and programs like it read; inspect the folder that it "
        "was made of");
  if (is_packed(path) && is_data_file(path)) return describe_data(path);
  if (extension == ".json") return may_be_tokenizer(path) ? describe_tokenizer(path) : describe_data(path);
  throw UsageError(
      path.string() +
      ": is not a .safetensors file, a tokenizer.json, a data file (docs/howto/data.md) or a folder of them");
}

void add_inspect(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command = app.add_subcommand("inspect", "describe a file or folder");
  command
      ->add_option("path", arguments->path,
                   "folder of a model (or its name on the hub), adapter, run or checkpoint; a tokenizer, "
                   ".safetensors or data file")
      ->required()
      ->type_name("PATH");
  command->add_flag("--tensors", arguments->tensors, "list all tensors");
  command->add_flag("--json", arguments->json, "JSON output");
  command->callback([arguments, &action] {
    action = [arguments] {
      const Description d = describe(model_folder(arguments->path), arguments->tensors);
      if (arguments->json) {
        print_json(d, arguments->path);
      } else {
        print_text(d, arguments->path);
      }
      return ExitCode::ok;
    };
  });
}

}  // namespace plimsoll
