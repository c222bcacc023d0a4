// Writes GGUF, version 3: the format of llama.cpp and of what is built on it. Keys and values, the names,
// shapes and types of the tensors, then their bytes, each tensor aligned to 32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/file.h"
#include "formats/gguf_types.h"

namespace plimsoll {

// Everything before the tensors' bytes.
class GgufHead {
 public:
  void add(std::string_view key, uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, bool value);
  void add(std::string_view key, std::string_view text);
  void add(std::string_view key, const char* text) { add(key, std::string_view(text)); }
  void add(std::string_view key, std::span<const std::string> texts);
  void add(std::string_view key, std::span<const int32_t> values);
  void add(std::string_view key, std::span<const float> values);
  // In the order in which the bytes follow. `shape` as in a checkpoint, rows first.
  void add_tensor(std::string_view name, GgufType type, const Shape& shape);

  // The head, its end aligned; and the size of the whole file.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] int64_t file_bytes() const { return static_cast<int64_t>(text().size()) + data_bytes_; }

 private:
  void add_key(std::string_view key, uint32_t type);

  std::string values_, tensors_;
  uint64_t value_count_ = 0, tensor_count_ = 0;
  int64_t data_bytes_ = 0;
};

// A file that has the head; the tensors' bytes are appended in order.
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, const GgufHead& head);
  void write(std::span<const std::byte> bytes);
  // Behind each tensor: fills up to the alignment.
  void end_tensor();
  // Flushes to disk; throws InternalError where bytes are missing.
  void finish();

 private:
  File file_;
  int64_t at_ = 0, end_ = 0;
};

}  // namespace plimsoll
