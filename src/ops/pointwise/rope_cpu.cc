#include <algorithm>

#include "ops/cpu_dispatch.h"
#include "ops/pointwise/rope_kernels.h"

namespace plimsoll {
namespace {

// No rotation: cosines 1, sines 0.
void fill_identity(float* table, int64_t rows, int64_t half) {
  for (int64_t r = 0; r < rows; ++r) {
    std::fill_n(table + r * 2 * half, half, 1.0F);
    std::fill_n(table + r * 2 * half + half, half, 0.0F);
  }
}

}  // namespace

// Each live sequence has its own frequencies; padding is not rotated.
BoundCall bind_rope_table(const CpuBinding& b) {
  const int64_t tokens = b.input_tensor(0).shape[0];
  const int64_t half = b.input_tensor(2).shape[1] - 1;
  return [=, positions = b.input<int32_t>(0), starts = b.input<int32_t>(1), inv_freq = b.input<float>(2),
          step = b.input<double>(3), table = b.output<float>(0), axis = b.op().axis,
          threads = b.settings().threads] {
    const int64_t sequences = live_sequences(step, axis);
    int64_t end = 0;
    for (int64_t s = 0; s < sequences; ++s) {
      const int64_t begin = starts[s];
      fill_identity(table + end * 2 * half, begin - end, half);
      end = starts[s + 1];
      const float* frequencies = inv_freq + s * (half + 1);
      rope_table(positions + begin, end - begin, frequencies, half, frequencies[half],
                 table + begin * 2 * half, threads);
    }
    fill_identity(table + end * 2 * half, tokens - end, half);
  };
}

BoundCall bind_rope(const CpuBinding& b) {
  const Tensor& x = b.input_tensor(0);
  return with_element_type(b, x.dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const int64_t head_dim = b.input_tensor(1).shape[1];
    const Rope<T> args{.x = b.input<T>(0),
                       .table = b.input<float>(1),
                       .y = b.output<T>(0),
                       .tokens = x.shape[0],
                       .heads = x.shape[1] / head_dim,
                       .head_dim = head_dim,
                       .inverse = b.op().attr_int("inverse") == 1,
                       .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, rope, Rope<T>);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
