// The sizes of a step that kernels read on the device: grids depend on planned sizes, and blocks look here
// whether they have something to do.
#pragma once

#include "ops/gpu_dispatch.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

// The number of planned rows that count: those that carry tokens, or what is left of a list behind `begin`.
struct LiveRows {
  const double* step = nullptr;  // neither: all rows
  StepValue which = StepValue::live_tokens;
  const int32_t* listed = nullptr;
  int64_t begin = 0;

  [[nodiscard]] PL_BOTH int64_t of(int64_t planned) const {
    if (step != nullptr) return static_cast<int64_t>(step_value(step, which));
    if (listed == nullptr) return planned;
    const int64_t left = *listed - begin;
    return left < 0 ? 0 : left < planned ? left : planned;
  }
};

// The rows of the op's axis by input `step`; all of them where the op has none.
template <class Number>
LiveRows live_rows(const GpuBinding& b, Number step) {
  if (!b.has_input(step)) return {};
  return {.step = b.input<double>(step), .which = live_tokens_of(b.op().axis)};
}

// The rule by which a sum is added to what is there: always, unless an op's attribute `accumulate` makes it
// the first writer.
struct Accumulation {
  int64_t accumulate = 1;
  const double* step = nullptr;

  [[nodiscard]] PL_BOTH bool adds() const { return !overwrites_gradient(accumulate, step); }
};

// The places of the sequences on an axis of tokens.
struct GpuSequences {
  const int32_t* starts = nullptr;
  int64_t tokens = 0;  // planned rows
};

// The sequence that holds the token; -1: none, it is padding.
PL_DEV int64_t sequence_of(const int32_t* starts, int64_t live, int64_t token) {
  int64_t low = 0;
  int64_t high = live;  // the sequence is in [low, high), if in any
  if (high == 0 || token < starts[0] || token >= starts[high]) return -1;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (token >= starts[middle]) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Zeros to the rows of no live sequence.
inline constexpr unsigned kPaddingThreads = 128;
template <class T>
__global__ void __launch_bounds__(kPaddingThreads)
    clear_padding(T* rows, int64_t width, GpuSequences where, const double* step, StepValue sequences) {
  const int64_t row = blockIdx.x;
  if (row >= where.starts[0] && row < where.starts[static_cast<int>(step_value(step, sequences))]) return;
  for (int64_t i = threadIdx.x; i < width; i += kPaddingThreads)
    rows[row * width + i] = gpu::rounded<T>(0.0F);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
