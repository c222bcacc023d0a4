// A file that tensors are read from, whatever its format: safetensors, or GGUF as a checkpoint has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "tensor/tensor.h"

namespace plimsoll {

struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  int64_t offset = 0;  // from the start of the file
  int64_t bytes = 0;
};

class TensorFile {
 public:
  TensorFile() = default;
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;
  TensorFile(TensorFile&&) = default;
  TensorFile& operator=(TensorFile&&) = default;
  // Defined in a source file, as those of its heirs: GNU gold refuses programs that have some of them twice.
  virtual ~TensorFile();

  [[nodiscard]] virtual const std::filesystem::path& path() const = 0;
  // Fills `to` with the tensor's bytes from its byte `start` on.
  virtual void read(const TensorEntry& tensor, int64_t start, std::span<std::byte> to) const = 0;
};

}  // namespace plimsoll
