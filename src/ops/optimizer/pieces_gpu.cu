// Pieces of ranks: reduce_scatter, all_gather. As on the CPU the host sends, in front of the one and behind
// the other.
#include "ops/gpu_dispatch.h"
#include "ops/optimizer/optimizer_slices.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kPiecesThreads = 256;
constexpr int64_t kPiecesPerBlock = int64_t{kPiecesThreads} * gpu::kEight;

// sums = x in the first micro-step, else sums + x.
template <class T>
__global__ void __launch_bounds__(kPiecesThreads)
    take_piece(const T* x, T* sums, const double* step, int64_t count) {
  const gpu::OwnEight own(count);
  if (own.count == 0) return;
  float value[gpu::kEight];
  gpu::load8(value, x + own.at, own.count, own.whole());
  if (step_value(step, StepValue::first_micro_step) != 1.0) {
    float before[gpu::kEight];
    gpu::load8(before, sums + own.at, own.count, own.whole());
    PL_UNROLL
    for (int i = 0; i < gpu::kEight; ++i) value[i] += before[i];
  }
  gpu::store8(sums + own.at, value, own.count, own.whole());
}

constexpr int64_t kPieceWord = 16;  // bytes; pieces begin at multiples of it

struct alignas(kPieceWord) PieceWord {
  uint8_t bytes[kPieceWord];
};

// Bytes of a whole tensor: the rank's own from `first` on, the others zero. A word for each thread.
__global__ void __launch_bounds__(kPiecesThreads)
    place_piece(const uint8_t* piece, uint8_t* whole, int64_t first, int64_t bytes, int64_t all) {
  const int64_t at = (int64_t{blockIdx.x} * kPiecesThreads + threadIdx.x) * kPieceWord;
  if (at >= all) return;
  const bool is_own = at >= first && at < first + bytes;
  const bool is_cut = at + kPieceWord > all || (is_own && at + kPieceWord > first + bytes);
  if (!is_cut) {
    *reinterpret_cast<PieceWord*>(whole + at) =
        is_own ? *reinterpret_cast<const PieceWord*>(piece + (at - first)) : PieceWord{};
    return;
  }
  const int64_t end = at + kPieceWord < all ? at + kPieceWord : all;
  for (int64_t i = at; i < end; ++i) whole[i] = is_own && i < first + bytes ? piece[i - first] : uint8_t{0};
}

}  // namespace

BoundCall bind_gpu_reduce_scatter(const GpuBinding& b) {
  using at = operand::reduce_scatter;
  return with_stored_type(b, b.output_tensor(at::piece).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const int64_t count = updated_range(b.graph(), b.op(), at::gradient).elements;
    return [&stream = b.stream(), x = gradient_slice<T>(b, at::gradient), sums = b.output<T>(at::piece),
            step = b.input<double>(at::step), count] {
      gpu::launch(stream, {gpu::blocks_of(count, kPiecesPerBlock)}, {kPiecesThreads}, take_piece<T>, x, sums,
                  step, count);
    };
  });
}

BoundCall bind_gpu_all_gather(const GpuBinding& b) {
  using at = operand::all_gather;
  const Tensor& whole = b.output_tensor(at::whole);
  const int64_t size = size_of(whole.dtype);
  const int64_t first = b.op().attr_int("first") * size, bytes = b.op().attr_int("elements") * size;
  require(first % kPieceWord == 0, b.graph(), b.op(), "all_gather: a piece that cuts words of 16 bytes");
  return [&stream = b.stream(), piece = b.input<uint8_t>(at::piece), to = b.output<uint8_t>(at::whole), first,
          bytes, all = whole.bytes()] {
    gpu::launch(stream, {gpu::blocks_of(all, kPiecesThreads * kPieceWord)}, {kPiecesThreads}, place_piece,
                piece, to, first, bytes, all);
  };
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
