#include "formats/model_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "files/atomic.h"
#include "formats/convert.h"
#include "formats/load.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

bool is_floating(DType dtype) { return can_convert(dtype, DType::f32); }

std::string shard_name(const std::string& stem, size_t number, size_t count) {
  if (count == 1) return stem + ".safetensors";
  char text[32];
  std::snprintf(text, sizeof text, "-%05zu-of-%05zu", number, count);
  return formatted("{}{}.safetensors", stem, text);
}

bool belongs_beside(const fs::path& file) {
  const std::string name = file.filename().string();
  for (const char* written : {"run.json", "trainer_state.json", "checksums.json", "trace.json", "check.json"})
    if (name == written) return false;
  if (name.ends_with(".safetensors.index.json")) return false;
  const std::string extension = file.extension().string();
  return extension == ".json" || extension == ".txt" || extension == ".model" || extension == ".jinja";
}

// A folder that was sent by others may hold a link to anything of the user's, whose content must not travel
// on. The Hugging Face cache keeps a snapshot's files in `blobs` next to `snapshots`.
void require_near(const fs::path& link, const fs::path& folder) {
  const fs::path target = fs::canonical(link), home = fs::canonical(folder);
  for (const fs::path& near : {home, home.parent_path().parent_path() / "blobs"})
    if (std::mismatch(near.begin(), near.end(), target.begin(), target.end()).first == near.end()) return;
  throw UsageError(formatted(
      "{}: is a link that leads out of the folder, to {}; copy the file itself there, or remove the link",
      link.string(), target.string()));
}

// Refuses values that round to infinity: from 65,520 on in f16, from 2^128 - 2^119 on in bf16.
void require_range(std::span<const std::byte> values, const StoredTensor& tensor, DType dtype) {
  const float least = dtype == DType::f16 ? 65520.0F : dtype == DType::bf16 ? 0x1.FFp127F : INFINITY;
  for (size_t at = 0; at < values.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, values.data() + at, sizeof value);
    if (std::isfinite(value) && std::abs(value) >= least)
      throw UsageError(formatted("{}: tensor '{}' holds values beyond {}'s range ({}); use {}",
                                 tensor.file->path().string(), tensor.entry->name, to_string(dtype),
                                 std::to_string(value), dtype == DType::f16 ? "bf16" : "f32"));
  }
}

}  // namespace

std::vector<Shard> stored_shards(const ModelFolder& model, std::optional<DType> dtype) {
  std::map<std::string, Shard> shards;
  for (const std::string& name : model.names()) {
    const StoredTensor tensor = model.find(name);
    const std::string file = tensor.file->path().filename().string();
    Shard& shard = shards.try_emplace(file, Shard{file, {}}).first->second;
    const DType stored = tensor.entry->dtype;
    shard.tensors.push_back({name, dtype && is_floating(stored) ? *dtype : stored, tensor.entry->shape,
                             model.name_in_files(name)});
  }
  std::vector<Shard> result;
  for (auto& [file, shard] : shards) result.push_back(std::move(shard));
  return result;
}

std::vector<Shard> cut_into_shards(const std::vector<Shard>& shards, int64_t most_bytes,
                                   const std::string& stem) {
  std::vector<Shard> cut(1);
  int64_t bytes = 0;
  for (const Shard& shard : shards) {
    for (const TensorSpec& tensor : shard.tensors) {
      if (!cut.back().tensors.empty() && bytes + bytes_of(tensor) > most_bytes) {
        cut.emplace_back();
        bytes = 0;
      }
      bytes += bytes_of(tensor);
      cut.back().tensors.push_back(tensor);
    }
  }
  for (size_t i = 0; i < cut.size(); ++i) cut[i].file = shard_name(stem, i + 1, cut.size());
  return cut;
}

int64_t shards_bytes(std::span<const Shard> shards) {
  int64_t bytes = 0;
  for (const Shard& shard : shards)
    for (const TensorSpec& tensor : shard.tensors) bytes += bytes_of(tensor);
  return bytes;
}

void write_shard_index(std::span<const Shard> shards, const fs::path& folder, const std::string& stem) {
  if (shards.size() == 1 && shards[0].file == stem + ".safetensors") return;
  nlohmann::json files = nlohmann::json::object();
  for (const Shard& shard : shards)
    for (const TensorSpec& tensor : shard.tensors) files[tensor.file_name()] = shard.file;
  const nlohmann::json index = {{"metadata", {{"total_size", shards_bytes(shards)}}}, {"weight_map", files}};
  write_file_atomically(folder / (stem + ".safetensors.index.json"), index.dump(2) + "\n");
}

void copy_model_file(const fs::path& from, const std::string& name, const fs::path& to) {
  if (fs::is_symlink(from / name)) require_near(from / name, from);
  fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing);
}

void copy_model_files(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from))
    if (entry.is_regular_file() && belongs_beside(entry.path()))
      copy_model_file(from, entry.path().filename().string(), to);
}

void set_config_dtype(const fs::path& folder, DType dtype) {
  nlohmann::json config = read_config(folder);
  const char* name = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] = name;
  write_file_atomically(folder / "config.json", config.dump(2) + "\n");
}

void copy_tensor(const StoredTensor& tensor, DType dtype, SafetensorsWriter& writer,
                 std::span<std::byte> staging) {
  const TensorEntry& entry = *tensor.entry;
  if (dtype == entry.dtype) {
    const auto step = static_cast<int64_t>(staging.size());
    for (int64_t at = 0; at < entry.bytes; at += step) {
      const auto part = staging.first(static_cast<size_t>(std::min(step, entry.bytes - at)));
      tensor.file->read(entry, at, part);
      writer.write(entry.name, part);
    }
    return;
  }
  // A third of the staging each: as stored, as f32, as written.
  const size_t third = staging.size() / 3 / sizeof(float) * sizeof(float);
  const std::span<std::byte> stored = staging.first(third), wide = staging.subspan(third, third),
                             narrow = staging.subspan(2 * third, third);
  const auto step = static_cast<int64_t>(third / sizeof(float));
  for (int64_t first = 0; first < entry.shape.elements(); first += step) {
    const auto count = static_cast<size_t>(std::min(step, entry.shape.elements() - first));
    const auto values = wide.first(count * sizeof(float));
    load_elements(tensor, first, values, DType::f32, stored);
    require_range(values, tensor, dtype);
    const auto written = narrow.first(count * static_cast<size_t>(size_of(dtype)));
    convert(values, DType::f32, written, dtype);
    writer.write(entry.name, written);
  }
}

}  // namespace plimsoll
