// Converts a model or adapter folder to other element types or other shards, in bounded memory.
#pragma once

#include <filesystem>
#include <optional>

#include "tensor/tensor.h"

namespace plimsoll {

struct ConvertOptions {
  std::filesystem::path folder;        // a model, or an adapter
  std::filesystem::path out;           // must not exist yet
  std::optional<DType> dtype;          // f32, bf16 or f16, of floating-point tensors; none: as they are
  std::optional<int64_t> shard_bytes;  // at most, of tensors in a file; none: the files that are there
};

struct ConvertResult {
  int64_t tensors = 0, converted = 0, files = 0;
  int64_t bytes_before = 0, bytes = 0;
};

// The folder appears whole or not at all. Throws UsageError for an output that exists, values that the new
// type cannot hold and quantised weights, StoppedError when the disk has no room.
ConvertResult convert_model(const ConvertOptions& options);

}  // namespace plimsoll
