// A model folder as Hugging Face writes it: config.json and model.safetensors, or shards with an index.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_checkpoint.h"
#include "formats/safetensors.h"

namespace plimsoll {

// A tensor and the file that holds it. Valid as long as the folder object.
struct StoredTensor {
  const TensorFile* file = nullptr;
  const TensorEntry* entry = nullptr;
};

// The weights of a folder: every shard open, headers read, no tensor bytes in memory. The rows of gate_proj
// and of up_proj, which older versions of flash-linear-attention wrote as one tensor, are two tensors here.
// Tensors of a BERT or RoBERTa have the names that they have below a head, also where the folder holds the
// encoder alone, and LayerNorm.weight and .bias are called so where they were gamma and beta. Tensors of a model of
// texts within one of images too have the names of transformers' modules in memory, "model.language_model.*", also
// where files have "language_model.model.*".
class ModelFolder {
 public:
  // `stem` is "model", or "adapter_model" for a PEFT folder. Throws UsageError when the folder has no
  // safetensors weights, DamagedError when the index names absent files or tensors.
  static ModelFolder open(const std::filesystem::path& folder, const std::string& stem = "model");
  // A folder whose weights are a GGUF.
  static ModelFolder of(const std::filesystem::path& folder, std::shared_ptr<const GgufCheckpoint> gguf);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] bool contains(std::string_view name) const { return tensors_.contains(name); }
  // Throws UsageError with the nearest name when there is no such tensor.
  [[nodiscard]] StoredTensor find(std::string_view name) const;
  // Takes in the tensors of another file of the folder, where that is there.
  void add_file(const std::string& name);
  // Names all but a head for next tokens as they are called below another head, unless they are called so
  // already: "transformer.shared.weight". Nothing for "".
  void put_below_head(std::string_view prefix);
  // The name in the files of a tensor of a model of images and texts; of others the name itself.
  [[nodiscard]] std::string name_in_files(const std::string& name) const;
  // Every tensor's name, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  // Bytes of all tensors.
  [[nodiscard]] int64_t bytes() const;

 private:
  void add_all(const SafetensorsFile& file);
  void open_shards(const std::filesystem::path& index_path);
  void split_fused_gates();
  void name_encoder();
  void name_text_model();
  void rename(const std::string& name, const std::string& now);

  std::filesystem::path path_;
  std::map<std::string, SafetensorsFile> shards_;  // by file name; a map keeps addresses when it moves
  std::shared_ptr<const GgufCheckpoint> gguf_;     // null: the weights are safetensors
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::deque<TensorEntry> changed_;                                 // addresses stay, as of the map
  std::map<std::string, std::string, std::less<>> names_in_files_;  // of those that name_text_model() renamed
};

// The name of a GGUF file in a model's folder (weights/gguf_names.h reads such folders).
inline constexpr const char* kGgufFile = "model.gguf";

// Returns true if the folder has safetensors weights of that name, in one file or in shards.
bool has_weights(const std::filesystem::path& folder, const std::string& stem = "model");

// folder/config.json; `name` reads another one, such as generation_config.json or adapter_config.json.
// Throws UsageError when it is absent, DamagedError when it is not a JSON object.
nlohmann::json read_config(const std::filesystem::path& folder, const std::string& name = "config.json");

}  // namespace plimsoll
