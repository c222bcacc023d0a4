// Writes a new model folder: chooses the file of each tensor, copies the bytes through a small staging
// buffer, and copies the small files next to them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/model_folder.h"

namespace plimsoll {

struct Shard {
  std::string file;  // "model-00001-of-00003.safetensors"
  std::vector<TensorSpec> tensors;
};

// The tensors as their folder holds them, each with the type that `dtype` gives it: floating-point ones only.
std::vector<Shard> stored_shards(const ModelFolder& model, std::optional<DType> dtype);
// The same tensors in files of at most `most_bytes` (a larger tensor has one for itself), named as Hugging
// Face names them; one file STEM.safetensors where it is enough.
std::vector<Shard> cut_into_shards(const std::vector<Shard>& shards, int64_t most_bytes,
                                   const std::string& stem);
int64_t shards_bytes(std::span<const Shard> shards);

// STEM.safetensors.index.json, where there are several shards.
void write_shard_index(std::span<const Shard> shards, const std::filesystem::path& folder,
                       const std::string& stem);
// Copies configuration, tokenizer and templates, the files next to the weights, without indices of shards and
// files that a run wrote.
void copy_model_files(const std::filesystem::path& from, const std::filesystem::path& to);
// Copies one of them over one that is there. Throws UsageError for a link that leads out of the folder.
void copy_model_file(const std::filesystem::path& from, const std::string& name,
                     const std::filesystem::path& to);
// `folder`/config.json with its element type set to `dtype`.
void set_config_dtype(const std::filesystem::path& folder, DType dtype);

// Appends the whole tensor to `writer` as `dtype`, `staging` being the only memory used. Throws UsageError
// where finite values would become infinite.
void copy_tensor(const StoredTensor& tensor, DType dtype, SafetensorsWriter& writer,
                 std::span<std::byte> staging);

}  // namespace plimsoll
