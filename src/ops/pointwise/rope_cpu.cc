#include <algorithm>

#include "ops/cpu_dispatch.h"
#include "ops/pointwise/rope_args.h"

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
  using at = operand::rope_table;
  const int64_t tokens = b.input_tensor(at::positions).shape[0];
  const int64_t half = b.input_tensor(at::inv_freq).shape[1] - 1;
  return [=, positions = b.input<int32_t>(at::positions), starts = b.input<int32_t>(at::seq_starts),
          inv_freq = b.input<float>(at::inv_freq), step = b.input<double>(at::step),
          table = b.output<float>(at::table), factor = position_factor(b.op()), axis = b.op().axis,
          threads = b.settings().threads] {
    const int64_t sequences = live_sequences(step, axis);
    int64_t end = 0;
    for (int64_t s = 0; s < sequences; ++s) {
      const int64_t begin = starts[s];
      fill_identity(table + end * 2 * half, begin - end, half);
      end = starts[s + 1];
      const float* frequencies = inv_freq + s * (half + 1);
      rope_table(positions + begin, end - begin, frequencies, half, frequencies[half], factor,
                 table + begin * 2 * half, threads);
    }
    fill_identity(table + end * 2 * half, tokens - end, half);
  };
}

BoundCall bind_rope(const CpuBinding& b) {
  using at = operand::rope;
  return with_element_type(b, b.input_tensor(at::x).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Rope<T> args = with_threads(b, rope_args<T>(b));
    const auto kernel = PLIMSOLL_KERNEL(b, rope, Rope<T>);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
