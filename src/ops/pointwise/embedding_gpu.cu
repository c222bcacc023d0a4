#include "ops/gpu_rows.h"
#include "ops/pointwise/padding_row.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kEmbeddingThreads = 128;

// A block a token; rows beyond the live ones are 0.
template <class W>
__global__ void __launch_bounds__(kEmbeddingThreads)
    take_rows(const int32_t* ids, const W* table, const double* step, AxisId axis, W* y, int64_t vocab,
              int64_t words) {
  W* const to = y + blockIdx.x * words;
  if (blockIdx.x >= live_tokens(step, axis)) {
    for (int64_t i = threadIdx.x; i < words; i += kEmbeddingThreads) to[i] = W{};
    return;
  }
  const int64_t id = ids[blockIdx.x];
  gpu::require(id >= 0 && id < vocab, "embedding: a token id is outside the vocabulary");
  for (int64_t i = threadIdx.x; i < words; i += kEmbeddingThreads) to[i] = table[id * words + i];
}

template <class W>
__global__ void __launch_bounds__(kEmbeddingThreads)
    clear_gradient(W* gradient, int64_t count, int64_t accumulate, const double* step) {
  if (!overwrites_gradient(accumulate, step)) return;
  const int64_t at = int64_t{blockIdx.x} * kEmbeddingThreads + threadIdx.x;
  if (at < count) gradient[at] = W{};
}

// The block of an id's first token adds the rows of all its tokens; none those of the padding row.
template <class T, class G>
__global__ void __launch_bounds__(kEmbeddingThreads)
    add_rows(const int32_t* ids, const T* x, const double* step, AxisId axis, G* table, int64_t vocab,
             int64_t width, int64_t padding) {
  using Rows = NamedRows<kEmbeddingThreads>;
  const auto live = static_cast<int>(live_tokens(step, axis)), first = static_cast<int>(blockIdx.x);
  if (first >= live) return;
  const auto id = [ids](int token) { return ids[token]; };
  gpu::require(id(first) >= 0 && id(first) < vocab, "embedding_dw: a token id is outside the vocabulary");
  if (id(first) == padding || Rows::is_repeated(first, id)) return;
  Rows::add(first, live, id, x, width, table + int64_t{id(first)} * width);
}

}  // namespace

BoundCall bind_gpu_embedding(const GpuBinding& b) {
  using at = operand::embedding;
  const Tensor& weight = b.input_tensor(at::weight);
  const auto tokens = static_cast<unsigned>(b.input_tensor(at::ids).shape[0]);
  return with_row_words(weight.shape[1] * size_of(weight.dtype), [&](auto word, int64_t words) -> BoundCall {
    using W = decltype(word);
    return [=, &stream = b.stream(), ids = b.input<int32_t>(at::ids), table = b.input<W>(at::weight),
            step = b.input<double>(at::step), y = b.output<W>(at::h), vocab = weight.shape[0],
            axis = b.op().axis] {
      gpu::launch(stream, {tokens}, {kEmbeddingThreads}, take_rows<W>, ids, table, step, axis, y, vocab,
                  words);
    };
  });
}

BoundCall bind_gpu_embedding_dw(const GpuBinding& b) {
  using at = operand::embedding_dw;
  const Tensor& gradient = b.output_tensor(at::d_weight);
  return with_gpu_types(b, b.input_tensor(at::d_h).dtype, gradient.dtype, [&](auto t, auto g) -> BoundCall {
    using T = decltype(t);
    using G = decltype(g);
    return [=, &stream = b.stream(), ids = b.input<int32_t>(at::ids), x = b.input<T>(at::d_h),
            step = b.input<double>(at::step), table = b.output<G>(at::d_weight),
            accumulate = b.op().attr_int("accumulate"), vocab = gradient.shape[0], width = gradient.shape[1],
            axis = b.op().axis, padding = padding_row(b.op()),
            tokens = static_cast<unsigned>(b.input_tensor(at::ids).shape[0])] {
      const int64_t count = vocab * width;
      gpu::launch(stream, {gpu::blocks_of(count, kEmbeddingThreads)}, {kEmbeddingThreads}, clear_gradient<G>,
                  table, count, accumulate, step);
      gpu::launch(stream, {tokens}, {kEmbeddingThreads}, add_rows<T, G>, ids, x, step, axis, table, vocab,
                  width, padding);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
