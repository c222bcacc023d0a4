#include "ops/gpu_rows.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kThreads = 128;

// A block a token; rows beyond the live ones are 0.
template <class W>
__global__ void __launch_bounds__(kThreads) take_rows(const int32_t* ids, const W* table, const double* step,
                                                      AxisId axis, W* y, int64_t vocab, int64_t words) {
  W* const to = y + blockIdx.x * words;
  if (blockIdx.x >= live_tokens(step, axis)) {
    for (int64_t i = threadIdx.x; i < words; i += kThreads) to[i] = W{};
    return;
  }
  const int64_t id = ids[blockIdx.x];
  gpu::require(id >= 0 && id < vocab, "embedding: a token id is outside the vocabulary");
  for (int64_t i = threadIdx.x; i < words; i += kThreads) to[i] = table[id * words + i];
}

template <class W>
__global__ void __launch_bounds__(kThreads)
    clear_gradient(W* gradient, int64_t count, int64_t accumulate, const double* step) {
  if (!overwrites_gradient(accumulate, step)) return;
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at < count) gradient[at] = W{};
}

// Whether an earlier token has this one's id; the block's threads ask together.
PL_DEV bool is_repeated(const int32_t* ids, int64_t token) {
  PL_SHARED(float, parts, kThreads / gpu::kWarpSize);
  float found = 0;
  for (int64_t i = threadIdx.x; i < token; i += kThreads)
    if (ids[i] == ids[token]) found = 1;
  return gpu::block_sum<kThreads>(found, parts) > 0;
}

PL_DEV int lowest(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __ffs(static_cast<int>(bits)) - 1;
#else
  return __builtin_ctz(bits);
#endif
}

// A bit for each of kThreads tokens.
constexpr int kMasks = kThreads / gpu::kWarpSize;
struct TokenBits {
  uint32_t masks[kMasks];
};

// The block of an id's first token adds the rows of all its tokens, in their order, as the CPU does: no two
// blocks meet in a row, and no bit depends on when blocks run. Rounded to G after each. The block's threads
// look at kThreads tokens at a time; bits that are read and bits that are written take turns.
template <class T, class G>
__global__ void __launch_bounds__(kThreads) add_rows(const int32_t* ids, const T* x, const double* step,
                                                     AxisId axis, G* table, int64_t vocab, int64_t width) {
  PL_SHARED(TokenBits, found, 2);
  const int64_t live = live_tokens(step, axis);
  const int64_t first = blockIdx.x;
  if (first >= live) return;
  const int32_t id = ids[first];
  gpu::require(id >= 0 && id < vocab, "embedding_dw: a token id is outside the vocabulary");
  if (is_repeated(ids, first)) return;
  int turn = 0;
  for (int64_t begin = first; begin < live; begin += kThreads, turn ^= 1) {
    const int64_t own = begin + threadIdx.x;
    const uint32_t of_warp = __ballot_sync(gpu::kAll, own < live && ids[own] == id);
    if (threadIdx.x % gpu::kWarpSize == 0) found[turn].masks[threadIdx.x / gpu::kWarpSize] = of_warp;
    __syncthreads();
    const TokenBits bits = found[turn];
    uint32_t any = 0;
    for (const uint32_t mask : bits.masks) any |= mask;
    if (any == 0) continue;
    for (int64_t column = threadIdx.x; column < width; column += kThreads) {
      G sum = table[id * width + column];
      for (int warp = 0; warp < kMasks; ++warp)
        for (uint32_t left = bits.masks[warp]; left != 0; left &= left - 1) {
          const int64_t token = begin + warp * gpu::kWarpSize + lowest(left);
          sum = gpu::rounded<G>(gpu::to_float(sum) + gpu::to_float(x[token * width + column]));
        }
      table[id * width + column] = sum;
    }
  }
}

}  // namespace

BoundCall bind_gpu_embedding(const GpuBinding& b) {
  const Tensor& weight = b.input_tensor(1);
  const auto tokens = static_cast<unsigned>(b.input_tensor(0).shape[0]);
  return with_row_words(weight.shape[1] * size_of(weight.dtype), [&](auto word, int64_t words) -> BoundCall {
    using W = decltype(word);
    return [=, &stream = b.stream(), ids = b.input<int32_t>(0), table = b.input<W>(1),
            step = b.input<double>(2), y = b.output<W>(0), vocab = weight.shape[0], axis = b.op().axis] {
      gpu::launch(stream, {tokens}, {kThreads}, take_rows<W>, ids, table, step, axis, y, vocab, words);
    };
  });
}

BoundCall bind_gpu_embedding_dw(const GpuBinding& b) {
  const Tensor& gradient = b.output_tensor(0);
  return with_gpu_types(b, b.input_tensor(1).dtype, gradient.dtype, [&](auto t, auto g) -> BoundCall {
    using T = decltype(t);
    using G = decltype(g);
    return [=, &stream = b.stream(), ids = b.input<int32_t>(0), x = b.input<T>(1), step = b.input<double>(2),
            table = b.output<G>(0), accumulate = b.op().attr_int("accumulate"), vocab = gradient.shape[0],
            width = gradient.shape[1], axis = b.op().axis,
            tokens = static_cast<unsigned>(b.input_tensor(0).shape[0])] {
      const int64_t count = vocab * width;
      gpu::launch(stream, {gpu::blocks_of(count, kThreads)}, {kThreads}, clear_gradient<G>, table, count,
                  accumulate, step);
      gpu::launch(stream, {tokens}, {kThreads}, add_rows<T, G>, ids, x, step, axis, table, vocab, width);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
