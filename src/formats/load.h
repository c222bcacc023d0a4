// Loads tensors from disk into planned memory, and converts them on the way.
#pragma once

#include <cstdint>
#include <span>

#include "formats/model_folder.h"

namespace plimsoll {

// Staging worth giving: larger reads are not faster, smaller ones cost system calls.
inline constexpr int64_t kLoadStagingBytes = int64_t{8} << 20;
// States are written and checked while a run reads rows, one of which may take much memory at the time.
inline constexpr int64_t kSaveStagingBytes = int64_t{4} << 20;

// Fills `to` with elements [first, first + to.size() / size_of(to_dtype)) of the tensor. Equal types are read
// straight into `to`; others pass through `staging`, the only other memory used (any size of one element or
// more). Throws UsageError for types that do not convert, InternalError for a range the tensor does not have.
void load_elements(const StoredTensor& tensor, int64_t first, std::span<std::byte> to, DType to_dtype,
                   std::span<std::byte> staging);

// Throws UsageError when the tensor's shape is not `shape`.
void require_shape(const StoredTensor& tensor, const Shape& shape);

// The whole tensor. Throws UsageError when its shape is not `shape`.
void load_tensor(const StoredTensor& tensor, const Shape& shape, std::span<std::byte> to, DType to_dtype,
                 std::span<std::byte> staging);

}  // namespace plimsoll
