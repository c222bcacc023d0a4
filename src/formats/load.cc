#include "formats/load.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "formats/convert.h"

namespace plimsoll {
namespace {

std::string location(const StoredTensor& tensor) {
  return formatted("{}: tensor '{}'", tensor.file->path().string(), tensor.entry->name);
}

}  // namespace

void load_elements(const StoredTensor& tensor, int64_t first, std::span<std::byte> to, DType to_dtype,
                   std::span<std::byte> staging) {
  const DType from_dtype = tensor.entry->dtype;
  if (!can_convert(from_dtype, to_dtype))
    throw UsageError(formatted("{} is {}, which does not convert to {}.", location(tensor),
                               to_string(from_dtype), to_string(to_dtype)));
  const auto from_size = static_cast<size_t>(size_of(from_dtype));
  const auto to_size = static_cast<size_t>(size_of(to_dtype));
  check_internal(to.size() % to_size == 0, "load: the destination ends inside an element");
  int64_t start = first * size_of(from_dtype);
  if (from_dtype == to_dtype) {
    tensor.file->read(*tensor.entry, start, to);
    return;
  }
  const size_t chunk_elements = staging.size() / from_size;
  check_internal(chunk_elements > 0, "load: no staging was given");
  while (!to.empty()) {
    const size_t elements = std::min(chunk_elements, to.size() / to_size);
    const std::span<std::byte> chunk = staging.first(elements * from_size);
    tensor.file->read(*tensor.entry, start, chunk);
    convert(chunk, from_dtype, to.first(elements * to_size), to_dtype);
    start += static_cast<int64_t>(chunk.size());
    to = to.subspan(elements * to_size);
  }
}

void require_shape(const StoredTensor& tensor, const Shape& shape) {
  if (tensor.entry->shape != shape)
    throw UsageError(
        formatted("{} has shape {}, the model needs {}. config.json and weights belong to different models.",
                  location(tensor), tensor.entry->shape.to_string(), shape.to_string()));
}

void load_tensor(const StoredTensor& tensor, const Shape& shape, std::span<std::byte> to, DType to_dtype,
                 std::span<std::byte> staging) {
  require_shape(tensor, shape);
  check_internal(static_cast<int64_t>(to.size()) == shape.elements() * size_of(to_dtype),
                 "load: the destination is not as large as the tensor");
  load_elements(tensor, 0, to, to_dtype, staging);
}

}  // namespace plimsoll
