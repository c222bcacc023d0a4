#include "formats/model_folder.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "files/json.h"

namespace plimsoll {
namespace {

using nlohmann::json;

constexpr int64_t kMaxConfigBytes = kMiB;      // the largest known config.json is below 100 kB
constexpr int64_t kMaxIndexBytes = 32 * kMiB;  // about 100 bytes a tensor

// weight_map of the index: tensor -> file name.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const json index = read_json(path, kMaxIndexBytes, {.unique_keys = true});
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    throw DamagedError(path.string() + ": has no weight_map. Fetch it again.");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    // A plain name only: an index must not reach outside its folder.
    if (!file.is_string() ||
        std::filesystem::path(file.get<std::string>()).filename() != file.get<std::string>())
      throw DamagedError(formatted(
          "{}: weight_map gives tensor '{}' the file {}, a file name in the same folder is expected.",
          path.string(), tensor, file.dump()));
    files.emplace(tensor, file.get<std::string>());
  }
  return files;
}

// Names the absent shards, all of them: people fetch them in one go.
void check_present(const std::filesystem::path& index_path, const std::map<std::string, std::string>& files) {
  std::set<std::string> absent;
  for (const auto& [tensor, file] : files)
    if (!std::filesystem::exists(index_path.parent_path() / file)) absent.insert(file);
  if (absent.empty()) return;
  throw DamagedError(formatted("{}: names files that are not there: {}. Fetch them into the same folder.",
                               index_path.string(),
                               join(std::vector<std::string>(absent.begin(), absent.end()), ", ")));
}

[[noreturn]] void no_weights(const std::filesystem::path& folder, const std::string& stem) {
  std::string message =
      formatted("{}: has neither {}.safetensors nor {}.safetensors.index.json.", folder.string(), stem, stem);
  const bool pickled = std::filesystem::exists(folder / "pytorch_model.bin") ||
                       std::filesystem::exists(folder / "pytorch_model.bin.index.json") ||
                       std::filesystem::exists(folder / "adapter_model.bin");
  if (pickled)
    message += " Its .bin weights are Python pickles, which are not read: save it as safetensors.";
  else if (stem == "model" && std::filesystem::exists(folder / "config.json"))
    message +=
        " Put the model's weights there; a new model is trained from random ones by init: random beside "
        "method.type: full.";
  throw UsageError(message);
}

// As transformers names a model's encoder: the part of its heads' names that comes first.
std::string encoder_prefix(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "config.json")) return "";
  const json config = read_config(folder);
  const auto type = config.find("model_type");
  if (type == config.end()) return "";
  if (*type == "modernbert") return "model.";
  return *type == "bert" ? "bert." : *type == "roberta" || *type == "xlm-roberta" ? "roberta." : "";
}

}  // namespace

ModelFolder ModelFolder::open(const std::filesystem::path& folder, const std::string& stem) {
  if (!std::filesystem::is_directory(folder)) throw UsageError(folder.string() + ": no such folder.");
  ModelFolder result;
  result.path_ = folder;
  const std::string single = stem + ".safetensors";
  const std::filesystem::path index_path = folder / (single + ".index.json");
  if (std::filesystem::exists(folder / single))
    result.add_all(result.shards_.emplace(single, SafetensorsFile::open(folder / single)).first->second);
  else if (std::filesystem::exists(index_path))
    result.open_shards(index_path);
  else
    no_weights(folder, stem);
  result.split_fused_gates();
  result.name_encoder();
  result.name_text_model();
  return result;
}

ModelFolder ModelFolder::of(const std::filesystem::path& folder, std::shared_ptr<const GgufCheckpoint> gguf) {
  ModelFolder result;
  result.path_ = folder;
  result.gguf_ = std::move(gguf);
  for (const TensorEntry& entry : result.gguf_->tensors())
    result.tensors_.emplace(entry.name, StoredTensor{result.gguf_.get(), &entry});
  return result;
}

void ModelFolder::name_encoder() {
  std::string prefix;
  if (contains("embeddings.word_embeddings.weight") || contains("embeddings.tok_embeddings.weight"))
    prefix = encoder_prefix(path_);
  for (const std::string& name : names()) {
    std::string now = name;
    for (const auto& [before, after] : {std::pair{"LayerNorm.gamma", "weight"}, {"LayerNorm.beta", "bias"}})
      if (now.ends_with(before)) now.replace(now.rfind('.') + 1, std::string::npos, after);
    for (const char* part : {"embeddings.", "encoder.", "pooler.", "layers.", "final_norm."})
      if (!prefix.empty() && name.starts_with(part)) now.insert(0, prefix);
    if (now != name && !contains(now)) rename(name, now);
  }
}

namespace {

// Beginnings of names in files and in memory, of which the first that fits counts; PEFT's prefix may come before them.
constexpr std::array kInMemory = {std::pair{"language_model.lm_head.", "lm_head."},
                                  std::pair{"language_model.model.", "model.language_model."},
                                  std::pair{"language_model.", "model.language_model."},
                                  std::pair{"vision_tower.", "model.vision_tower."},
                                  std::pair{"multi_modal_projector.", "model.multi_modal_projector."}};

std::string name_in_memory(const std::string& name) {
  constexpr std::string_view kAdapter = "base_model.model.";
  const size_t start = name.starts_with(kAdapter) ? kAdapter.size() : 0;
  const std::string_view rest = std::string_view(name).substr(start);
  for (const auto& [file, memory] : kInMemory)
    if (rest.starts_with(file))
      return formatted("{}{}{}", name.substr(0, start), memory, rest.substr(std::string_view(file).size()));
  return name;
}

}  // namespace

void ModelFolder::name_text_model() {
  for (const std::string& name : names()) {
    const std::string now = name_in_memory(name);
    if (now == name) continue;
    if (contains(now))
      throw UsageError(formatted("{}: has '{}' and '{}', which are the same tensor; keep one of them",
                                 path_.string(), name, now));
    rename(name, now);
    names_in_files_.emplace(now, name);
  }
}

std::string ModelFolder::name_in_files(const std::string& name) const {
  const auto found = names_in_files_.find(name);
  return found == names_in_files_.end() ? name : found->second;
}

void ModelFolder::rename(const std::string& name, const std::string& now) {
  const StoredTensor tensor = find(name);
  changed_.push_back(*tensor.entry);
  changed_.back().name = now;
  tensors_.erase(name);
  tensors_[now] = {tensor.file, &changed_.back()};
}

void ModelFolder::put_below_head(std::string_view prefix) {
  const std::vector<std::string> all = names();
  const auto is_below = [&](const std::string& name) { return name.starts_with(prefix); };
  if (std::any_of(all.begin(), all.end(), is_below)) return;
  for (const std::string& name : all)
    if (name != "lm_head.weight") rename(name, std::string(prefix) + name);
}

void ModelFolder::split_fused_gates() {
  constexpr std::string_view kGate = ".mlp.gate_proj.weight";
  if (!contains("model.embeddings.weight")) return;  // fla's name
  for (const std::string& name : names()) {
    if (!name.ends_with(kGate)) continue;
    const std::string up = name.substr(0, name.size() - kGate.size()) + ".mlp.up_proj.weight";
    const StoredTensor fused = find(name);
    if (contains(up) || fused.entry->shape.rank() != 2 || fused.entry->shape[0] % 2 != 0) continue;
    TensorEntry half = *fused.entry;
    half.shape = {fused.entry->shape[0] / 2, fused.entry->shape[1]};
    half.bytes = fused.entry->bytes / 2;
    tensors_[name] = {fused.file, &changed_.emplace_back(half)};
    half.name = up;
    half.offset += half.bytes;
    tensors_[up] = {fused.file, &changed_.emplace_back(half)};
  }
}

void ModelFolder::add_all(const SafetensorsFile& file) {
  for (const TensorEntry& entry : file.tensors()) tensors_.emplace(entry.name, StoredTensor{&file, &entry});
}

void ModelFolder::add_file(const std::string& name) {
  if (std::filesystem::exists(path_ / name))
    add_all(shards_.emplace(name, SafetensorsFile::open(path_ / name)).first->second);
}

void ModelFolder::open_shards(const std::filesystem::path& index_path) {
  const std::map<std::string, std::string> files = read_index(index_path);
  check_present(index_path, files);
  for (const auto& [tensor, name] : files) {
    auto shard = shards_.find(name);
    if (shard == shards_.end()) shard = shards_.emplace(name, SafetensorsFile::open(path_ / name)).first;
    const TensorEntry* entry = shard->second.find(tensor);
    if (entry == nullptr)
      throw DamagedError(formatted(
          "{}: places tensor '{}' in {}, which does not hold it. Index and shards belong to different "
          "models.",
          index_path.string(), tensor, name));
    tensors_.emplace(tensor, StoredTensor{&shard->second, entry});
  }
}

StoredTensor ModelFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  const std::string near = nearest_name(name, names());
  throw UsageError(formatted("{}: has no tensor '{}'{}", path_.string(), name,
                             near.empty() ? "." : formatted(" (it has '{}').", near)));
}

std::vector<std::string> ModelFolder::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

int64_t ModelFolder::bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) bytes += tensor.entry->bytes;
  return bytes;
}

bool has_weights(const std::filesystem::path& folder, const std::string& stem) {
  return std::filesystem::exists(folder / (stem + ".safetensors")) ||
         std::filesystem::exists(folder / (stem + ".safetensors.index.json"));
}

json read_config(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path path = folder / name;
  if (!std::filesystem::is_directory(folder)) throw UsageError(folder.string() + ": no such folder.");
  if (!std::filesystem::exists(path))
    throw UsageError(
        formatted("{}: has no {}, so it is no Hugging Face model folder.", folder.string(), name));
  json config = read_json(path, kMaxConfigBytes);
  if (!config.is_object())
    throw DamagedError(formatted("{}: is {}, an object is expected.", path.string(), describe_kind(config)));
  return config;
}

}  // namespace plimsoll
