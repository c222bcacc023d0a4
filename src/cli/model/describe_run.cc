// Runs and their checkpoints.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/regular_file.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/model/describe.h"
#include "formats/model_folder.h"
#include "recipe/load/load.h"
#include "runs/checkpoint.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string decimals(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// The last whole line of a log of JSON lines; null where it has none.
Json last_line(const fs::path& file) {
  if (!fs::exists(file)) return nullptr;
  require_regular(file);
  std::ifstream in(file);
  Json last = nullptr;
  for (std::string line; std::getline(in, line);) {
    Json json = read_json_text<Json>(line);
    if (json.is_object()) last = std::move(json);
  }
  return last;
}

void add_number(Description& d, const char* name, const Json& from, const char* key) {
  if (!from.is_object() || !from.contains(key) || !from[key].is_number()) return;
  d.add(name,
        from[key].is_number_integer() ? format_count(from[key].get<int64_t>())
                                      : decimals(from[key].get<double>()),
        from[key]);
}

void append(Description& d, Description model) {
  d.add("holds", model.kind);
  for (Fact& fact : model.facts) d.facts.push_back(std::move(fact));
  for (FactTable& table : model.tables) d.tables.push_back(std::move(table));
}

void add_recipe(Description& d, const fs::path& file) {
  const Recipe recipe = load_recipe(file.string()).recipe;
  const auto method = recipe.method.type;
  d.add("method", method == MethodType::full ? "full" : method == MethodType::lora ? "lora" : "qlora");
  d.add("model", recipe.model);
  std::vector<std::string> paths;
  for (const TrainSource& source : recipe.data.train) paths.push_back(source.path);
  d.add("data", join(paths, ", "), paths);
}

void add_checkpoints(Description& d, const fs::path& run) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name.starts_with("checkpoint-") &&
        fs::exists(entry.path() / "trainer_state.json"))
      names.push_back(name);
  }
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  d.add("checkpoints", names.empty() ? "none" : join(names, ", "), names);
}

}  // namespace

Description describe_checkpoint(const fs::path& folder, bool tensors) {
  Description d{"checkpoint", {}, {}};
  const TrainerState state = read_trainer_state(folder);
  d.add("step", formatted("{} of {}", format_count(state.step), format_count(state.total_steps)),
        {{"step", state.step}, {"total_steps", state.total_steps}});
  d.add("position",
        formatted("epoch {}, row {}", format_count(state.position.epoch), format_count(state.position.index)),
        {{"epoch", state.position.epoch}, {"index", state.position.index}});
  d.add("loss", decimals(state.last_loss), state.last_loss);
  d.add("kernels", state.kernels);
  if (fs::exists(folder / "optimizer.safetensors")) {
    const auto bytes = static_cast<int64_t>(fs::file_size(folder / "optimizer.safetensors"));
    d.add("optimizer", format_bytes(bytes), bytes);
  }
  append(d, fs::exists(folder / "adapter_config.json") ? describe_adapter(folder, tensors)
                                                       : describe_model(folder, tensors));
  return d;
}

Description describe_run(const fs::path& folder, bool tensors) {
  Description d{"run", {}, {}};
  Json result = nullptr;
  if (fs::exists(folder / "run.json")) result = Json::parse(read_config(folder, "run.json").dump());
  const bool finished = result.is_object() && result.contains("finished") && result["finished"] == true;
  d.add("state", finished ? "finished" : result.is_object() ? "interrupted, saved" : "not finished");
  if (fs::exists(folder / "recipe.yaml")) add_recipe(d, folder / "recipe.yaml");
  add_number(d, "steps", result, "steps");
  if (!result.is_object()) add_number(d, "steps", last_line(folder / "metrics.jsonl"), "step");
  add_number(d, "loss", result.is_object() ? result : last_line(folder / "metrics.jsonl"),
             result.is_object() ? "final_loss" : "loss");
  add_number(d, "evaluation loss", result.is_object() ? result : last_line(folder / "eval.jsonl"),
             result.is_object() ? "eval_loss" : "loss");
  add_number(d, "tokens/s", result, "tokens_per_second");
  const Json measured = result.is_object() ? result.value("measured", Json()) : Json();
  const Json peak = measured.is_object() ? measured.value("process_peak_rss_bytes", Json()) : Json();
  if (peak.is_number_unsigned()) d.add("process peak", format_bytes(peak.get<int64_t>()), peak);
  add_checkpoints(d, folder);
  if (fs::exists(folder / "adapter_config.json")) {
    append(d, describe_adapter(folder, tensors));
  } else if (fs::exists(folder / "config.json")) {
    append(d, describe_model(folder, tensors));
  }
  return d;
}

}  // namespace plimsoll
