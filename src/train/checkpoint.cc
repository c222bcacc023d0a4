#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/units.h"
#include "io/atomic.h"
#include "io/file.h"
#include "io/load.h"
#include "io/model_folder.h"
#include "train/row_io.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kStateFile = "trainer_state.json";
constexpr const char* kOptimizerStem = "optimizer";
constexpr int64_t kMaxStateBytes = kMiB;

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

// States that break down reach the weights with the next step, so that weights are enough.
std::optional<std::string> weight_not_finite(const PersistentState& state) {
  std::vector<std::byte> staging(static_cast<size_t>(kLoadStagingBytes));
  for (const TableRow& row : state.rows()) {
    if (row.role != Role::trainable_weight && row.role != Role::master) continue;
    bool finite = true;
    state.visit(row, staging, [&](int64_t, std::span<const std::byte> piece) {
      finite = finite && !find_not_finite(piece, row.dtype);
    });
    if (!finite) return row.name;
  }
  return std::nullopt;
}

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
  write_file_atomically(folder.path() / kStateFile, to_text(trainer));
  write_file_atomically(folder.path() / "recipe.yaml", options.recipe_yaml);
  folder.publish();
}

void remove_old_checkpoints(const CheckpointOptions& options) {
  const std::vector<fs::path> all = checkpoints(options.output);
  const auto best = options.keep_best ? best_checkpoint(options.output) : std::nullopt;
  for (size_t i = 0; i + static_cast<size_t>(options.keep) < all.size(); ++i)
    if (all[i] != best) remove_folder_atomically(all[i]);
}

std::optional<fs::path> latest_checkpoint(const fs::path& output) {
  const std::vector<fs::path> all = checkpoints(output);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::optional<fs::path> best_checkpoint(const fs::path& output) {
  std::optional<fs::path> best;
  double lowest = 0;
  for (const fs::path& checkpoint : checkpoints(output)) {
    const auto loss = read_trainer_state(checkpoint).eval_loss;
    if (!loss || (best && *loss >= lowest)) continue;
    best = checkpoint;
    lowest = *loss;
  }
  return best;
}

TrainerState read_trainer_state(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kStateFile;
  if (!fs::exists(file)) throw DamagedError(file.string() + ": is missing: the checkpoint is incomplete");
  TrainerState state = parse_trainer_state(read_text(file, kMaxStateBytes), file.string());
  const int64_t named = step_of(checkpoint);
  if (named >= 0 && named != state.step)
    throw DamagedError(file.string() + ": is of step " + std::to_string(state.step) +
                       ", its folder's name says another one");
  return state;
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
    throw DamagedError(checkpoint.string() + ": the checkpoint is incomplete: " + error.what() +
                       "\n  remove the folder to go on from the checkpoint before it");
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
    link_atomically(entry.path(), output / name);
  }
}

}  // namespace plimsoll
