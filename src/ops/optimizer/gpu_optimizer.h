// Helpers that the optimizers' kernels share on GPUs: which thread updates which elements, stochastic
// rounding, and the numbers of a step. A kernel gets its rule as a type with
//
//   struct Coefficients;                               of a step, computed once by each block
//   Coefficients coefficients() const;
//   void update_own(const Coefficients&, Own) const;   the eight elements of a thread
#pragma once

#include "ops/gpu_dispatch.h"
#include "ops/name_hash.h"
#include "ops/optimizer/optimizer_slices.h"
#include "ops/philox.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

inline constexpr int kUpdateThreads = 256;
// Blocks to a multiprocessor: enough to hide the memory's latency; each computes the step's numbers once, in
// f64.
inline constexpr int kUpdateBlocksPerMultiprocessor = 4;
// The elements that a counter's four words serve, 16 bits each, lie kLanes apart (ops/philox.h).
inline constexpr int64_t kUpdateLanes = 16;
inline constexpr int kOwnElements = 8;
inline constexpr int64_t kUpdateChunk = kOwnElements * kUpdateLanes;

// A thread's elements in the slice, and their counter.
struct Own {
  int64_t first;
  uint32_t counter;

  [[nodiscard]] PL_DEV int64_t at(int i) const { return first + i * kUpdateLanes; }
};

// The value of a weight that random bits are for.
enum class RandomFor : uint32_t { weight, m, v };

// The members that all rules have. P: weight, f32 or bf16. G: gradient.
template <class P, class G>
struct GpuWeightUpdate {
  const double* step;
  const double* norm;  // null: the gradient is not clipped
  double rate, weight_decay;
  uint64_t name_hash;
  P* weight;
  void* copy;        // of an f32 weight, rounded to nearest; may be null
  bool copy_is_f16;  // otherwise bf16
  const G* gradient;
  int64_t count, first_element;

  [[nodiscard]] PL_DEV double learning_rate() const {
    return rate * step_value(step, StepValue::learning_rate);
  }
  [[nodiscard]] PL_DEV bool does_nothing() const { return overflowed(norm); }
  PL_DEV void put_copy(int64_t at, float weight) const {
    if (copy == nullptr) return;
    if (copy_is_f16)
      static_cast<gpu::f16*>(copy)[at] = gpu::rounded<gpu::f16>(weight);
    else
      static_cast<gpu::bf16*>(copy)[at] = gpu::rounded<gpu::bf16>(weight);
  }
  [[nodiscard]] PL_DEV float clip() const { return static_cast<float>(clip_factor(norm)); }
};

// By what a weight's random bits are drawn, and those of a state.
template <class P, class G>
PL_DEV PhiloxStream random_stream(const GpuWeightUpdate<P, G>& u, RandomFor which) {
  const auto number = static_cast<uint64_t>(step_value(u.step, StepValue::optimizer_step));
  return philox_stream(step_seed(u.step), u.name_hash, static_cast<uint32_t>(which),
                       static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32));
}

// The random bits of a thread's elements, or none where they are stored as they are.
template <class T>
struct Rounder {
  template <class P, class G>
  PL_DEV Rounder(const GpuWeightUpdate<P, G>&, RandomFor, Own) {}
  PL_DEV T operator()(float x, int) const { return x; }
};
template <>
struct Rounder<gpu::bf16> {
  uint32_t words[4];
  template <class P, class G>
  PL_DEV Rounder(const GpuWeightUpdate<P, G>& u, RandomFor which, Own own) {
    philox(random_stream(u, which), own.counter, words);
  }
  PL_DEV gpu::bf16 operator()(float x, int i) const {
    return gpu::rounded_by(x, words[i % 4] >> (i / 4 * 16) & 0xFFFFU);
  }
};

// Stores a weight, and its copy where there is one.
template <class P, class G>
PL_DEV void put_weight(const GpuWeightUpdate<P, G>& u, const Rounder<P>& round, int64_t at, int i,
                       float weight) {
  u.weight[at] = round(weight, i);
  u.put_copy(at, weight);
}

template <class Rule>
__global__ void __launch_bounds__(kUpdateThreads) update_weight(Rule rule, int64_t counters) {
  if (rule.update.does_nothing()) return;
  PL_SHARED(typename Rule::Coefficients, shared, 1);
  if (threadIdx.x == 0) *shared = rule.coefficients();
  __syncthreads();
  const typename Rule::Coefficients k = *shared;
  const int64_t first_counter = rule.update.first_element / kUpdateChunk * kUpdateLanes;
  for (int64_t i = int64_t{blockIdx.x} * kUpdateThreads + threadIdx.x; i < counters;
       i += int64_t{gridDim.x} * kUpdateThreads)
    rule.update_own(
        k, {i / kUpdateLanes * kUpdateChunk + i % kUpdateLanes, static_cast<uint32_t>(first_counter + i)});
}

// `master`: output of the f32 copy, where the op has one.
template <class P, class G>
GpuWeightUpdate<P, G> gpu_weight_update(const GpuBinding& b, size_t master) {
  const ElementRange range = updated_range(b.graph(), b.op());
  const bool has_master = b.has_output(master);
  return {.step = b.input<double>(kStepInput),
          .norm = b.input<double>(kNormInput),
          .rate = rate_factor(b.op()),
          .weight_decay = b.op().attr_float("weight_decay"),
          .name_hash = name_hash(b.op().scope),
          .weight = updated_slice<P>(b, has_master ? master : size_t{kWeightOutput}),
          .copy = has_master ? updated_slice<uint16_t>(b, kWeightOutput) : nullptr,
          .copy_is_f16 = b.output_tensor(kWeightOutput).dtype == DType::f16,
          .gradient = gradient_slice<G>(b),
          .count = range.elements,
          .first_element = range.first};
}

template <class Rule>
BoundCall bind_gpu_update(const GpuBinding& b, const Rule& rule) {
  const int64_t counters = (rule.update.count + kUpdateChunk - 1) / kUpdateChunk * kUpdateLanes;
  const auto most = static_cast<unsigned>(b.card().multiprocessors * kUpdateBlocksPerMultiprocessor);
  const unsigned wanted = gpu::blocks_of(counters, kUpdateThreads);
  return [rule, counters, blocks = wanted < most ? wanted : most, &stream = b.stream()] {
    gpu::launch(stream, {blocks}, {kUpdateThreads}, update_weight<Rule>, rule, counters);
  };
}

// make(P{}, G{}) for the types of what is updated (the master copy, output `master`, where there is one) and
// of the gradient.
template <class Make>
BoundCall with_gpu_update_types(const GpuBinding& b, size_t master, Make make) {
  const Tensor& updated = b.output_tensor(b.has_output(master) ? master : size_t{kWeightOutput});
  return with_stored_type(b, updated.dtype, [&](auto p) {
    return with_stored_type(b, b.input_tensor(kGradientInput).dtype, [&](auto g) { return make(p, g); });
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
