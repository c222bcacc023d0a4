// Reads GGUF files: keys and values, and the tensors' numbers of the types that are known here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "files/file.h"
#include "formats/gguf_types.h"

namespace plimsoll {

struct GgufTensor {
  GgufType type = GgufType::f32;
  Shape shape;         // rows first, as a checkpoint has them
  int64_t offset = 0;  // from the start of the file
};

// Holds the file open, its keys and its list of tensors in memory; numbers are read on demand.
class GgufFile {
 public:
  // Checks the whole head against the file. Throws DamagedError when they disagree, UsageError for a version
  // or a type of tensors that is not read.
  static GgufFile open(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }
  [[nodiscard]] const std::map<std::string, nlohmann::json, std::less<>>& values() const { return values_; }
  [[nodiscard]] const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }
  // Null when the file has no such key.
  [[nodiscard]] const nlohmann::json* value(std::string_view key) const;
  // Fills `to` with numbers from the tensor's `first` on, those of blocks by their scales.
  void read(const GgufTensor& tensor, int64_t first, std::span<float> to) const;

 private:
  explicit GgufFile(File file) : file_(std::move(file)) {}

  File file_;
  std::map<std::string, nlohmann::json, std::less<>> values_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
};

}  // namespace plimsoll
