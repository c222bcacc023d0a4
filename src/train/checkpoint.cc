#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strings.h"
#include "io/atomic.h"
#include "io/load.h"
#include "io/model_folder.h"
#include "train/row_io.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kStateFile = "trainer_state.json";
constexpr const char* kOptimizerStem = "optimizer";

// States, and masters of full fine-tuning; an adapter's master is in the adapter's own file.
std::vector<const TableRow*> optimizer_rows(const PersistentState& state) {
  std::vector<const TableRow*> rows;
  for (const TableRow& row : state.rows()) {
    const bool adapter_master = row.role == Role::master && row.name.find(".lora_") != std::string::npos;
    if ((row.role == Role::optimizer_state || row.role == Role::master) && !adapter_master)
      rows.push_back(&row);
  }
  return rows;
}

int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return -1;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + std::string_view(kPrefix).size(), end, step);
  return result.ec == std::errc() && result.ptr == end ? step : -1;
}

// Complete checkpoints, oldest first.
std::vector<fs::path> checkpoints(const fs::path& output) {
  std::vector<fs::path> found;
  if (!fs::is_directory(output)) return found;
  for (const auto& entry : fs::directory_iterator(output))
    if (entry.is_directory() && step_of(entry.path()) >= 0) found.push_back(entry.path());
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return step_of(a) < step_of(b); });
  return found;
}

void write_optimizer(const PersistentState& state, const fs::path& to) {
  const auto rows = optimizer_rows(state);
  std::vector<TensorSpec> specs;
  for (const TableRow* row : rows) specs.push_back({row->name, row->dtype, row->shape});
  SafetensorsWriter writer(to / (std::string(kOptimizerStem) + ".safetensors"), specs, {{"format", "pt"}});
  std::vector<std::byte> staging(static_cast<size_t>(kLoadStagingBytes));
  for (const TableRow* row : rows) write_row(state, *row, writer, row->name, staging);
  writer.finish();
}

}  // namespace

void save_checkpoint(const CheckpointOptions& options, const Experiment& experiment,
                     const PersistentState& state, const TrainerState& trainer) {
  int64_t bytes = export_bytes(state, experiment.lora);
  for (const TableRow* row : optimizer_rows(state)) bytes += row->bytes;
  require_disk_space(options.output, bytes + bytes / 100, "a checkpoint");

  AtomicFolder folder(options.output / (kPrefix + std::to_string(trainer.step)));
  if (experiment.lora) {
    write_adapter(state, experiment.lora_options, options.model_folder, folder.path());
  } else {
    write_model(state, options.model_folder, folder.path());
  }
  if (options.chat_template)
    write_file_atomically(folder.path() / "chat_template.jinja", options.chat_template->source());
  else
    fs::remove(folder.path() / "chat_template.jinja");
  write_optimizer(state, folder.path());
  const nlohmann::ordered_json json = {{"step", trainer.step},
                                       {"total_steps", trainer.total_steps},
                                       {"epoch", trainer.position.epoch},
                                       {"index", trainer.position.index},
                                       {"kernels", trainer.kernels},
                                       {"last_loss", trainer.last_loss},
                                       {"fingerprint", trainer.fingerprint}};
  write_file_atomically(folder.path() / kStateFile, json.dump(2) + "\n");
  write_file_atomically(folder.path() / "recipe.yaml", options.recipe_yaml);
  folder.publish();

  const std::vector<fs::path> all = checkpoints(options.output);
  for (size_t i = 0; i + static_cast<size_t>(options.keep) < all.size(); ++i) fs::remove_all(all[i]);
}

std::optional<fs::path> latest_checkpoint(const fs::path& output) {
  const std::vector<fs::path> all = checkpoints(output);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

TrainerState read_trainer_state(const fs::path& checkpoint) {
  const nlohmann::json json = read_config(checkpoint, kStateFile);
  try {
    return {json.at("step").get<int64_t>(),
            {json.at("epoch").get<int64_t>(), json.at("index").get<int64_t>()},
            json.at("fingerprint").get<std::string>(),
            json.at("kernels").get<std::string>(),
            json.at("total_steps").get<int64_t>(),
            json.at("last_loss").get<double>()};
  } catch (const nlohmann::json::exception& error) {
    throw DamagedError((checkpoint / kStateFile).string() + ": " + error.what());
  }
}

void load_checkpoint(const fs::path& checkpoint, const Experiment& experiment, const PersistentState& state) {
  std::vector<std::byte> staging(static_cast<size_t>(kLoadStagingBytes));
  try {
    if (experiment.lora) {
      load_adapters(state, checkpoint);
    } else {
      load_base_weights(state, checkpoint, {});
    }
    const ModelFolder optimizer = ModelFolder::open(checkpoint, kOptimizerStem);
    for (const TableRow* row : optimizer_rows(state))
      load_row(state, *row, optimizer.find(row->name), staging);
  } catch (const UsageError& error) {
    throw DamagedError(checkpoint.string() + ": the checkpoint is incomplete: " + error.what());
  }
  // Full fine-tuning with masters: the masters are exact, the stored weights are rounded from them.
  for (const TableRow& row : state.rows()) {
    const TableRow* master = is_weight(row) ? state.master_of(row) : nullptr;
    if (master != nullptr) round_from_master(state, row, *master, staging);
  }
}

void publish_final(const fs::path& checkpoint, const fs::path& output) {
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kOptimizerStem) || name == kStateFile) continue;
    const fs::path to = output / name;
    fs::remove(to);
    std::error_code no_links;
    fs::create_hard_link(entry.path(), to, no_links);
    if (no_links) fs::copy_file(entry.path(), to);
  }
}

}  // namespace plimsoll
