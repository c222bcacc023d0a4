#include "runs/fingerprint.h"
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "data/rows/dataset.h"
#include "formats/model_folder.h"
#include "ops/name_hash.h"
#include "recipe/effective.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

class ContentHash {
 public:
  void add(std::string_view text) { hash_ = name_hash(text, hash_); }
  void add(std::span<const std::byte> bytes) {
    add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  void add(int64_t value) { add(std::as_bytes(std::span(&value, 1))); }
  [[nodiscard]] std::string text() const {
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash_));
    return digits.data();
  }

 private:
  uint64_t hash_ = kNameHashStart;
};

constexpr int64_t kPiece = 16 * 1024;
// Pieces of a large file that are read, from its first to its last: a Parquet file's footer is in the last.
constexpr int64_t kPieces = 32;

void add_file(const fs::path& path, bool whole, ContentHash& hash) {
  const File file = File::open(path);
  const int64_t size = file.size();
  hash.add(size);
  std::vector<std::byte> piece(static_cast<size_t>(kPiece));
  const int64_t pieces = whole || size <= kPiece * kPieces ? (size + kPiece - 1) / kPiece : kPieces;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t start = size <= kPiece * pieces ? i * kPiece : (size - kPiece) / (pieces - 1) * i;
    const int64_t count = i == pieces - 1 ? std::min(kPiece, size) : std::min(kPiece, size - start);
    const auto part = std::span(piece).first(static_cast<size_t>(count));
    file.read(i == pieces - 1 ? size - count : start, part);
    hash.add(part);
  }
}

std::string file_hash(const fs::path& path) {
  ContentHash hash;
  add_file(path, true, hash);
  return hash.text();
}

// Weights that were trained further differ in nearly every tensor's first elements.
std::string tensors_hash(const fs::path& folder, const std::string& stem) {
  constexpr int64_t kSample = 256;
  const ModelFolder model = ModelFolder::open(folder, stem);
  ContentHash hash;
  std::array<std::byte, kSample> sample;
  for (const std::string& name : model.names()) {
    const StoredTensor tensor = model.find(name);
    hash.add(name);
    hash.add(to_string(tensor.entry->dtype));
    for (const int64_t extent : tensor.entry->shape.dims()) hash.add(extent);
    const auto part = std::span(sample).first(static_cast<size_t>(std::min(kSample, tensor.entry->bytes)));
    tensor.file->read(*tensor.entry, 0, part);
    hash.add(part);
  }
  return hash.text();
}

nlohmann::json model_hashes(const Recipe& recipe) {
  const fs::path folder = recipe.model;
  nlohmann::json fingerprint;
  ContentHash config;
  config.add(read_config(folder).dump());  // keys sorted, so that blanks do not count
  fingerprint["config"] = config.text();
  if (const auto file = Tokenizer::find_file(folder)) fingerprint["tokenizer"] = file_hash(*file);
  if (recipe.init == Init::weights) fingerprint["weights"] = tensors_hash(folder, "model");
  return fingerprint;
}

nlohmann::json adapter_hashes(const fs::path& folder) {
  ContentHash config;
  config.add(read_config(folder, "adapter_config.json").dump());
  return {{"config", config.text()}, {"weights", tensors_hash(folder, "adapter_model")}};
}

nlohmann::json data_hashes(const std::vector<TrainSource>& sources) {
  ContentHash hash;
  int64_t bytes = 0, count = 0;
  for (const auto& [path, weight, rows] : sources) {
    if (weight != 1.0) hash.add(std::to_string(weight));
    if (!rows.is_all()) hash.add(print_row_range(rows));
    for (const fs::path& file : data_files(path)) {
      add_file(file, false, hash);
      bytes += static_cast<int64_t>(fs::file_size(file));
      ++count;
    }
  }
  return {{"files", count}, {"bytes", bytes}, {"content", hash.text()}};
}

}  // namespace

std::string run_fingerprint(const Recipe& recipe) {
  nlohmann::json fingerprint = nlohmann::json::parse(experiment_fingerprint(recipe));
  fingerprint["model"] = model_hashes(recipe);
  fingerprint["data.train"] = data_hashes(recipe.data.train);
  if (recipe.adapter) fingerprint["adapter"] = adapter_hashes(*recipe.adapter);
  return fingerprint.dump();
}

void require_model_unchanged(const Recipe& recipe, const std::string& fingerprint, const fs::path& adapter) {
  std::string reason = "its files are other ones now";
  try {
    if (nlohmann::json::parse(fingerprint).at("model") == model_hashes(recipe)) return;
  } catch (const Error& error) {
    reason = error.what();
  } catch (const fs::filesystem_error& error) {
    reason = error.code().message();
  }
  throw StoppedError(formatted(
      "{}: the adapter is whole, but its base model, {}, was changed or removed during the run ({})\n  "
      "generate and merge need the model as it was: put it back, or name a copy (generate COPY "
      "--adapter, merge --base)",
      adapter.string(), recipe.model, reason));
}

}  // namespace plimsoll
