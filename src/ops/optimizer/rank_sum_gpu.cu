#include "ops/gpu_dispatch.h"
#include "ops/optimizer/gpu_rank_sum.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kRankSumThreads = 256;
constexpr int64_t kRankSumPerBlock = int64_t{kRankSumThreads} * gpu::kEight;
constexpr int64_t kRankSumAligned = 64;  // bytes

// Eight values for each thread, of every rank in turn.
template <class T>
__global__ void __launch_bounds__(kRankSumThreads)
    sum_over_ranks(const T* pieces, T* sums, int64_t ranks, int64_t count) {
  const gpu::OwnEight own(count);
  if (own.count == 0) return;
  float sum[gpu::kEight];
  gpu::load8(sum, pieces + own.at, own.count, own.whole());
  for (int64_t rank = 1; rank < ranks; ++rank) {
    float next[gpu::kEight];
    gpu::load8(next, pieces + (rank * count + own.at), own.count, own.whole());
    PL_UNROLL
    for (int i = 0; i < gpu::kEight; ++i) sum[i] += next[i];
  }
  gpu::store8(sums + own.at, sum, own.count, own.whole());
}

template <class T>
void launch_as(gpu::Stream& stream, std::span<const std::byte> pieces, int64_t ranks, std::byte* sums) {
  const auto count = static_cast<int64_t>(pieces.size() / sizeof(T)) / ranks;
  gpu::launch(stream, {gpu::blocks_of(count, kRankSumPerBlock)}, {kRankSumThreads}, sum_over_ranks<T>,
              reinterpret_cast<const T*>(pieces.data()), reinterpret_cast<T*>(sums), ranks, count);
}

}  // namespace

void launch_rank_sum(gpu::Stream& stream, std::span<const std::byte> pieces, int64_t ranks, DType dtype,
                     std::byte* sums) {
  check_internal(static_cast<int64_t>(pieces.size()) / ranks % kRankSumAligned == 0,
                 "pieces of ranks that are not aligned");
  if (pieces.empty()) return;
  if (dtype == DType::f32) return launch_as<float>(stream, pieces, ranks, sums);
  if (dtype == DType::bf16) return launch_as<gpu::bf16>(stream, pieces, ranks, sums);
  if (dtype == DType::f16) return launch_as<gpu::f16>(stream, pieces, ranks, sums);
  throw InternalError("no sum over ranks on a card of " + std::string(to_string(dtype)));
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
