// Copies weights between the arena and Hugging Face folders: loading, new random ones, and writing back.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "files/kept_files.h"
#include "formats/model_folder.h"
#include "models/spec.h"
#include "passes/lora.h"
#include "tasks/task.h"
#include "weights/persistent_state.h"

namespace plimsoll {

class RankReader;

bool is_adapter(const TableRow& row);
bool is_weight(const TableRow& row);
// Returns true if a weight, or a master weight, is saved with the adapters: an adapter, or a task's own head.
bool is_beside_adapters(const PersistentState& state, const TableRow& row);

// Called with the bytes filled so far and in all; for a progress bar.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

// The treatment of a task's own head that the folder does not have.
enum class FreshHead : uint8_t { must_be_there, stays };
// Fills every base weight from the folder, converted through a small staging buffer; masters get the stored
// precision. Weights that the state holds quantised become so on the way (weights/quantised_weights.h).
// `reader` (null: none): what several ranks read together, each its share.
void load_base_weights(const PersistentState& state, const std::filesystem::path& folder,
                       const LoadProgress& progress, FreshHead fresh = FreshHead::must_be_there,
                       RankReader* reader = nullptr);
// A new head of a task, as Hugging Face makes one: normal(0, initializer_range).
void init_fresh_weights(const PersistentState& state, const ModelSpec& model, uint64_t seed);
// New base weights as Hugging Face makes them: normal(0, initializer_range), ones for norms, zeros for
// biases.
void init_base_weights(const PersistentState& state, const ModelSpec& model, uint64_t seed);
// New adapters as PEFT makes them: A Kaiming-uniform, B zero, DoRA's magnitudes those of the rows, once the
// weights are there.
void init_adapters(const PersistentState& state, uint64_t seed);
// Adapters of a PEFT folder, and the head that is saved with them. Throws UsageError when one is missing.
void load_adapters(const PersistentState& state, const std::filesystem::path& folder,
                   FreshHead fresh = FreshHead::must_be_there, RankReader* reader = nullptr);

// The small files of a model's folder that a save copies, where it has them.
std::vector<std::string> copied_files(const std::filesystem::path& model_folder);

// All that a save takes from the model's folder, as it is now: a run saves whatever becomes of the folder.
struct SavedFrom {
  // `temporary` as KeptFiles has it. Throws as KeptFiles does, DamagedError for a config.json that is not
  // valid.
  SavedFrom(const std::filesystem::path& model_folder, const std::filesystem::path& temporary);

  nlohmann::json config;
  std::string base;  // as adapters name it: of the hub with a revision, or the path
  std::optional<std::string> revision;
  KeptFiles files;  // copied_files()
  // The folder's weights, open, where a model saved in full has some of them as they are, with the names of
  // those: an own head for next tokens below a value head, and what a wrapper of a text model has in addition.
  std::optional<ModelFolder> weights = {};
  std::vector<std::string> copied = {};

  // Takes those in. Throws UsageError where a wrapper lacks one.
  void keep_weights(const std::filesystem::path& model_folder, const ModelSpec& model);
  [[nodiscard]] int64_t copied_bytes() const;
  [[nodiscard]] std::string name_in_files(const std::string& name) const;
};
// "copied  439 tensors of vision_tower and multi_modal_projector (801 MiB), unchanged"; empty for other models.
std::string copied_words(const SavedFrom& from, const ModelSpec& model);

// Makes the config that of a model that scores sequences, as transformers reads it. Nothing where the task
// has no such head.
struct ScoreHead {
  const TaskSpec& task;
  const ModelSpec& model;
  const std::vector<std::string>& labels;  // names of the classes; empty: the config's, or LABEL_0 ...
};
void describe_head(const ScoreHead& head, nlohmann::json& config);

// Writes config.json, model.safetensors (or adapter_config.json and adapter_model.safetensors), and the
// tokenizer's files. Trained weights are written from their masters where they have one and are adapters,
// else as they are.
// Return the checksum of the weights' file. A value head is in neither. What ranks divide is left out.
std::optional<uint32_t> write_model(const PersistentState& state, const SavedFrom& from,
                                    const std::filesystem::path& to);
// This rank's pieces into the file that the leading rank has made with write_model().
void write_model_pieces(const PersistentState& state, const std::filesystem::path& folder);
std::optional<uint32_t> write_adapter(const PersistentState& state, const LoraOptions& lora,
                                      const SavedFrom& from, const std::filesystem::path& to);
// A value head as TRL and LLaMA-Factory have it, written in addition to either: v_head.summary.weight and
// .bias. Writes nothing and returns nullopt where the model has another head.
std::optional<uint32_t> write_value_head(const PersistentState& state, const std::filesystem::path& to);
// Bytes that write_model or write_adapter will write, about: weights, and the files that are copied with
// them.
int64_t export_bytes(const PersistentState& state, bool adapter, const SavedFrom& from);

}  // namespace plimsoll
