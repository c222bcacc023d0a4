#include <algorithm>
#include <cstring>

#include "ops/parallel_memory.h"

namespace plimsoll {
namespace {

// Below the size of an L2 cache, so that small tensors do not wake threads for nothing.
constexpr int64_t kPiece = int64_t{1} << 18;

}  // namespace

void parallel_clear(void* to, int64_t bytes, int threads) {
  auto* const bytes_to = static_cast<std::byte*>(to);
#pragma omp parallel for schedule(static) num_threads(threads) if (bytes > kPiece)
  for (int64_t at = 0; at < bytes; at += kPiece)
    std::memset(bytes_to + at, 0, static_cast<size_t>(std::min(kPiece, bytes - at)));
}

void parallel_copy(void* to, const void* from, int64_t bytes, int threads) {
  if (to == from) return;
  auto* const bytes_to = static_cast<std::byte*>(to);
  const auto* const bytes_from = static_cast<const std::byte*>(from);
#pragma omp parallel for schedule(static) num_threads(threads) if (bytes > kPiece)
  for (int64_t at = 0; at < bytes; at += kPiece)
    std::memcpy(bytes_to + at, bytes_from + at, static_cast<size_t>(std::min(kPiece, bytes - at)));
}

}  // namespace plimsoll
