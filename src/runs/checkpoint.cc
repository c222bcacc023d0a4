#include "runs/checkpoint.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/units.h"
#include "files/atomic.h"
#include "files/file.h"
#include "files/json.h"
#include "files/json_values.h"
#include "formats/load.h"
#include "formats/model_folder.h"
#include "recipe/recipe.h"
#include "weights/rank_reader.h"
#include "weights/row_io.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateFile = "trainer_state.json";
constexpr const char* kChecksumsFile = "checksums.json";
constexpr const char* kOptimizerStem = "optimizer";
constexpr int64_t kMaxStateBytes = kMiB;

// States, and masters of full fine-tuning; an adapter's master is in the adapter's own file.
std::vector<const TableRow*> optimizer_rows(const PersistentState& state) {
  std::vector<const TableRow*> rows;
  for (const TableRow& row : state.rows()) {
    const bool adapter_master = row.role == Role::master && is_beside_adapters(state, row);
    if ((row.role == Role::optimizer_state || row.role == Role::master) && !adapter_master)
      rows.push_back(&row);
  }
  return rows;
}

int64_t step_of(const fs::path& folder) { return checkpoint_step(folder.filename().string()).value_or(-1); }

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

fs::path optimizer_file(const fs::path& folder) {
  return folder / (std::string(kOptimizerStem) + ".safetensors");
}

// All but what ranks divide.
std::optional<uint32_t> write_optimizer(const PersistentState& state, const fs::path& to) {
  const auto rows = optimizer_rows(state);
  std::vector<TensorSpec> specs;
  for (const TableRow* row : rows) specs.push_back({row->name, row->dtype, row->whole_shape()});
  SafetensorsWriter writer(optimizer_file(to), specs, {{"format", "pt"}});
  std::vector<std::byte> staging(static_cast<size_t>(kSaveStagingBytes));
  for (const TensorSpec& spec : writer.tensors()) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const TableRow* r) { return r->name == spec.name; });
    if ((*row)->is_piece())
      writer.leave(spec.name);
    else
      write_row(state, **row, writer, spec.name, staging);
  }
  return writer.finish();
}

// This rank's pieces into the files that the leading rank has made.
void write_pieces(const PersistentState& state, const Experiment& experiment, const fs::path& folder) {
  if (!experiment.lora) write_model_pieces(state, folder);
  write_pieces(state, optimizer_rows(state), ModelFolder::open(folder, kOptimizerStem));
}

using Checksums = std::map<std::string, uint32_t>;

uint32_t checksum_of(const fs::path& path) {
  const File file = File::open(path);
  const int64_t bytes = file.size();
  std::vector<std::byte> staging(static_cast<size_t>(std::min(kSaveStagingBytes, bytes)));
  uint32_t checksum = 0;
  for (int64_t at = 0; at < bytes;) {
    const auto part = std::span(staging).first(static_cast<size_t>(std::min(kSaveStagingBytes, bytes - at)));
    file.read(at, part);
    checksum = crc32c(part, checksum);
    at += static_cast<int64_t>(part.size());
  }
  return checksum;
}

// `known` are those of large files, formed while these were written.
void write_checksums(const fs::path& folder, const Checksums& known) {
  nlohmann::json checksums = nlohmann::json::object();
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const auto found = known.find(name);
    checksums[name] = {{"bytes", fs::file_size(entry.path())},
                       {"crc32c", found != known.end() ? found->second : checksum_of(entry.path())}};
  }
  write_file_atomically(folder / kChecksumsFile, checksums.dump(2) + "\n");
}

}  // namespace

// States that break down reach the weights with the next step, so that weights are enough.
std::optional<std::string> weight_not_finite(const PersistentState& state) {
  std::vector<std::byte> staging(static_cast<size_t>(kSaveStagingBytes));
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

int64_t checkpoint_bytes(const CheckpointOptions& options, const Experiment& experiment,
                         const PersistentState& state) {
  constexpr int64_t kBlock = 4096;  // a file's last one is seldom full
  int64_t bytes = export_bytes(state, experiment.lora, *options.from) + checkpoint_files(options) * kBlock;
  for (const TableRow* row : optimizer_rows(state)) bytes += row->whole_bytes();
  return bytes + bytes / 100;
}

int64_t checkpoint_files(const CheckpointOptions& options) {
  // Itself; configuration, weights, a value head, template, optimizer, state, recipe, checksums.
  constexpr int64_t kOwn = 9;
  return kOwn + static_cast<int64_t>(options.from->files.names().size());
}

namespace {

// A checkpoint while it is written, by the process that holds the run's folder.
class Unfinished {
 public:
  Unfinished(const CheckpointOptions& options, const Experiment& experiment, const PersistentState& state,
             const TrainerState& trainer)
      : options_(options), experiment_(experiment), state_(state), trainer_(trainer) {}

  // Weights and optimizer. Returns the folder.
  const fs::path& begin() {
    require_disk_space(options_.folder->path(), checkpoint_bytes(options_, experiment_, state_),
                       "a checkpoint");
    folder_ = options_.folder->begin_folder(name_);
    const fs::path& to = folder_->path();
    if (experiment_.lora)
      add("adapter_model.safetensors", write_adapter(state_, experiment_.lora_options, *options_.from, to));
    else
      add("model.safetensors", write_model(state_, *options_.from, to));
    add(kValueHeadFile, write_value_head(state_, to));
    if (options_.chat_template)
      write_file_atomically(to / "chat_template.jinja", options_.chat_template->source());
    else
      fs::remove(to / "chat_template.jinja");
    add("optimizer.safetensors", write_optimizer(state_, to));
    return to;
  }

  void finish() {
    write_file_atomically(folder_->path() / kStateFile, to_text(trainer_));
    write_file_atomically(folder_->path() / "recipe.yaml", options_.recipe_yaml);
    write_checksums(folder_->path(), known_);
    options_.folder->publish(*folder_, name_);
  }

 private:
  void add(const char* file, std::optional<uint32_t> checksum) {
    if (checksum) known_[file] = *checksum;
  }

  const CheckpointOptions& options_;
  const Experiment& experiment_;
  const PersistentState& state_;
  const TrainerState& trainer_;
  std::string name_ = "checkpoint-" + std::to_string(trainer_.step);
  std::unique_ptr<AtomicFolder> folder_;
  Checksums known_;
};

}  // namespace

void save_checkpoint(const CheckpointOptions& options, const Experiment& experiment,
                     const PersistentState& state, const TrainerState& trainer, RunRanks& ranks) {
  Unfinished checkpoint(options, experiment, state, trainer);
  if (!state.has_pieces()) {
    checkpoint.begin();
    checkpoint.finish();
    return;
  }
  const std::string folder = ranks.by_leader([&] { return checkpoint.begin().string(); });
  ranks.together([&] { write_pieces(state, experiment, folder); });
  ranks.by_leader([&] {
    checkpoint.finish();
    return std::string();
  });
}

std::optional<fs::path> remove_old_checkpoints(const CheckpointOptions& options) {
  if (options.keep == kKeepAll) return std::nullopt;
  const std::vector<fs::path> all = checkpoints(options.folder->path());
  const auto best = options.best ? best_checkpoint(options.folder->path(), *options.best) : std::nullopt;
  std::optional<fs::path> kept;
  for (size_t i = 0; i + static_cast<size_t>(options.keep) < all.size(); ++i)
    if (all[i] != best && !options.folder->remove_folder(all[i].filename().string())) kept = all[i];
  return kept;
}

bool verify_checkpoint(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kChecksumsFile;
  if (!fs::exists(file)) return false;
  const auto damaged = [&](const fs::path& path, const std::string& what) {
    return DamagedError(formatted("{}: {}\n  remove the folder to resume from the checkpoint before it",
                                  path.string(), what));
  };
  const nlohmann::json checksums = read_json(file, kMaxStateBytes);
  read_values(file.string(), [&] {
    for (const auto& [name, wanted] : checksums.items()) {
      const fs::path path = checkpoint / fs::path(name).filename();
      if (!fs::exists(path)) throw damaged(path, "is missing: the checkpoint is incomplete");
      if (fs::file_size(path) != get_whole<uintmax_t>(wanted, "bytes") ||
          checksum_of(path) != get_whole<uint32_t>(wanted, "crc32c"))
        throw damaged(path, "is not what was saved (its checksum differs): the checkpoint is damaged");
    }
  });
  return true;
}

std::optional<fs::path> latest_checkpoint(const fs::path& output) {
  const std::vector<fs::path> all = checkpoints(output);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::optional<fs::path> best_checkpoint(const fs::path& output, std::string_view goal) {
  std::optional<fs::path> best;
  double least = 0;
  for (const fs::path& checkpoint : checkpoints(output)) {
    const auto value = read_trainer_state(checkpoint).evaluated(goal);
    if (!value || (best && cost_of(goal, *value) >= least)) continue;
    best = checkpoint;
    least = cost_of(goal, *value);
  }
  return best;
}

TrainerState read_trainer_state(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kStateFile;
  if (!fs::exists(file)) throw DamagedError(file.string() + ": is missing: the checkpoint is incomplete");
  TrainerState state = parse_trainer_state(read_text(file, kMaxStateBytes), file.string());
  const int64_t named = step_of(checkpoint);
  if (named >= 0 && named != state.step)
    throw DamagedError(
        formatted("{}: is of step {}, its folder's name says another one", file.string(), state.step));
  return state;
}

void load_checkpoint(const fs::path& checkpoint, const Experiment& experiment, const PersistentState& state,
                     RankReader* reader) {
  std::vector<std::byte> staging;  // claimed once the weights' loading has freed its own: the plan holds one
  try {
    if (experiment.lora) {
      load_adapters(state, checkpoint, FreshHead::must_be_there, reader);
    } else {
      load_base_weights(state, checkpoint, {}, FreshHead::must_be_there, reader);
    }
    const ModelFolder optimizer = ModelFolder::open(checkpoint, kOptimizerStem);
    staging.resize(static_cast<size_t>(kLoadStagingBytes));
    for (const TableRow* row : optimizer_rows(state))
      if (reader != nullptr)
        reader->load(state, *row, optimizer.find(row->name), staging);
      else
        load_row(state, *row, optimizer.find(row->name), staging);
  } catch (const UsageError& error) {
    throw DamagedError(formatted(
        "{}: the checkpoint is incomplete: {}\n  remove the folder to resume from the checkpoint before it",
        checkpoint.string(), error.what()));
  }
  // Full fine-tuning with masters: the masters are exact, the stored weights are rounded from them. (Where a rank has
  // a piece of the master, the rounded ones that are stored.)
  for (const TableRow& row : state.rows()) {
    const TableRow* master = is_weight(row) ? state.master_of(row) : nullptr;
    if (master != nullptr && !master->is_piece()) round_from_master(state, row, *master, staging);
  }
}

void publish_final(const fs::path& checkpoint, RunFolder& output) {
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kOptimizerStem) || name == kStateFile || name == kChecksumsFile) continue;
    output.link(entry.path(), name);
  }
}

}  // namespace plimsoll
