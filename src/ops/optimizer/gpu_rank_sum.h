// Sums over ranks on a card, of what cards have sent each other: those of ranks/ordered_sum.h, to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/backend.h"
#include "gpu/stream_handle.h"
#include "tensor/tensor.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

// sums[i] = pieces[0][i] + pieces[1][i] ..., of equal pieces of so many ranks, in f32, rounded once. Pieces begin at
// multiples of 64 bytes. Throws InternalError for other types than f32, bf16 and f16.
void launch_rank_sum(gpu::Stream& stream, std::span<const std::byte> pieces, int64_t ranks, DType dtype,
                     std::byte* sums);

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
