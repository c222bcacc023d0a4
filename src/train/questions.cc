#include "train/questions.h"

#include <algorithm>

#include "base/error.h"
#include "data/dataset.h"
#include "io/model_folder.h"
#include "text/special_tokens.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

bool has_column(const Dataset& dataset, const std::string& name) {
  return std::any_of(dataset.columns().begin(), dataset.columns().end(),
                     [&](const Column& column) { return column.name == name; });
}

void require_text(const Dataset& dataset, const std::string& name) {
  const Column& column = find_column(dataset.columns(), name, dataset.name());
  if (column.kind != ColumnKind::text)
    throw UsageError(dataset.name() + ": column '" + name + "' is " + column.type + ", not text");
}

std::vector<Question> read_rows(const fs::path& file, std::optional<int64_t> limit) {
  Dataset dataset = Dataset::open(std::span(&file, 1));
  std::vector<std::string> columns{"prompt"};
  if (has_column(dataset, "response")) columns.emplace_back("response");
  for (const std::string& column : columns) require_text(dataset, column);
  dataset.select(columns);
  const int64_t rows = std::min(dataset.rows(), limit.value_or(dataset.rows()));
  std::vector<Question> questions;
  Row cells;
  for (size_t unit = 0; unit < dataset.units().size(); ++unit) {
    const PlacedUnit placed = dataset.units()[unit];
    if (placed.first_row >= rows) break;
    dataset.hold(std::span(&unit, 1));
    for (int64_t row = placed.first_row; row < std::min(rows, placed.first_row + placed.rows); ++row) {
      dataset.read(row, cells);
      Question question{cells[0].text, {}, std::nullopt};
      if (columns.size() > 1) question.expected = cells[1].text;
      questions.push_back(std::move(question));
    }
  }
  return questions;
}

}  // namespace

ModelPaths find_model(const fs::path& folder, const std::optional<fs::path>& adapter) {
  if (!fs::is_directory(folder)) throw UsageError(folder.string() + ": no such folder");
  if (!fs::exists(folder / "adapter_config.json")) return {folder, adapter};
  if (adapter)
    throw UsageError("--adapter: " + folder.string() + " is an adapter itself; name its base model");
  const nlohmann::json config = read_config(folder, "adapter_config.json");
  const auto base = config.find("base_model_name_or_path");
  if (base != config.end() && base->is_string()) {
    const fs::path named = base->get<std::string>();
    for (const fs::path& candidate : {named, folder / named})
      if (fs::exists(candidate / "config.json")) return {candidate, folder};
  }
  throw UsageError((folder / "adapter_config.json").string() +
                   ": base_model_name_or_path names no model folder here; use plimsoll generate MODEL "
                   "--adapter " +
                   folder.string());
}

DType stored_type(const fs::path& base) {
  const nlohmann::json config = read_config(base);
  for (const char* key : {"dtype", "torch_dtype"})
    if (const auto found = config.find(key); found != config.end() && *found == "bfloat16")
      return DType::bf16;
  return DType::f32;
}

std::vector<int32_t> stop_ids(const fs::path& base, const Tokenizer* tokenizer) {
  if (tokenizer != nullptr) return read_special_tokens(base, *tokenizer).eos;
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (!fs::exists(base / name)) continue;
    const nlohmann::json config = read_config(base, name);
    const auto eos = config.find("eos_token_id");
    if (eos == config.end() || eos->is_null()) continue;
    if (eos->is_number_integer()) return {eos->get<int32_t>()};
    const bool ids = eos->is_array() && std::all_of(eos->begin(), eos->end(),
                                                    [](const auto& id) { return id.is_number_integer(); });
    if (!ids) throw DamagedError((base / name).string() + ": eos_token_id is no id: " + eos->dump());
    return eos->get<std::vector<int32_t>>();
  }
  return {};
}

std::vector<Question> read_questions(const GenerateOptions& options, const Tokenizer* tokenizer) {
  if (!options.ids.empty()) return {{"", options.ids, std::nullopt}};
  check_internal(tokenizer != nullptr, "texts without a tokenizer");
  std::vector<Question> questions;
  if (options.prompt) {
    questions.push_back({*options.prompt, {}, std::nullopt});
  } else {
    questions = read_rows(*options.data, options.limit);
  }
  for (Question& question : questions) {
    tokenizer->encode_into(question.prompt, false, question.ids);
    if (question.ids.empty()) {
      throw UsageError(
          (options.data ? options.data->string() + ", row " + std::to_string(&question - questions.data() + 1)
                        : std::string("--prompt")) +
          ": the prompt is empty; generation starts from at least one token");
    }
  }
  return questions;
}

}  // namespace plimsoll
