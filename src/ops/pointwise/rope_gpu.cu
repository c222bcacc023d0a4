#include "ops/gpu_step.h"
#include "ops/pointwise/rope_args.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kRopeThreads = 256;

struct RopeTable {
  const int32_t* positions;
  const int32_t* starts;  // of the sequences, and the end of the last
  const float* inv_freq;  // [sequences, half + 1], the last value of each is the attention factor
  const double* step;
  AxisId axis;
  float* table;  // [tokens, 2 * half]: cosines, then sines
  int64_t tokens, half;
  PositionFactor by_position;
};

// Angles in double, since one of 1e5 has lost its fraction in f32.
__global__ void __launch_bounds__(kRopeThreads) make_table(RopeTable a) {
  const int64_t number = int64_t{blockIdx.x} * kRopeThreads + threadIdx.x;
  if (number >= a.tokens * a.half) return;
  const int64_t token = number / a.half;
  const int64_t i = number % a.half;
  float* const cosines = a.table + token * 2 * a.half;
  const int64_t sequence = sequence_of(a.starts, live_sequences(a.step, a.axis), token);
  if (sequence < 0) {
    cosines[i] = 1.0F;
    cosines[a.half + i] = 0.0F;
    return;
  }
  const float* const frequencies = a.inv_freq + sequence * (a.half + 1);
  const double angle = static_cast<double>(a.positions[token]) * static_cast<double>(frequencies[i]);
  auto factor = static_cast<double>(frequencies[a.half]);
  const int64_t lengths = a.positions[token] / a.by_position.length;
  if (a.by_position.beta != 0 && lengths > 0)
    factor *= 1.0 + a.by_position.beta * log1p(static_cast<double>(lengths));
  cosines[i] = static_cast<float>(cos(angle) * factor);
  cosines[a.half + i] = static_cast<float>(sin(angle) * factor);
}

PL_DEV int eight_of(int64_t left) { return left >= gpu::kEight ? gpu::kEight : static_cast<int>(left); }

// Eight pairs (i, i + R/2) of a head a thread, or eight values that stay; `eights` of the pairs, `all` of both. y may be
// x. Arguments as the CPU's kernel has them.
template <class T>
__global__ void __launch_bounds__(kRopeThreads) rotate(Rope<T> a, int64_t eights, int64_t all) {
  const int64_t number = int64_t{blockIdx.x} * kRopeThreads + threadIdx.x;
  if (number >= a.tokens * a.heads * all) return;
  const int64_t half = a.rotary / 2;
  const int64_t head = number / all;  // counted through all tokens
  const bool packed = half % gpu::kEight == 0 && a.head_dim % gpu::kEight == 0;
  if (number % all >= eights) {
    const int64_t place = a.rotary + (number % all - eights) * gpu::kEight;
    float rest[gpu::kEight];
    gpu::load8(rest, a.x + head * a.head_dim + place, eight_of(a.head_dim - place), packed);
    gpu::store8(a.y + head * a.head_dim + place, rest, eight_of(a.head_dim - place), packed);
    return;
  }
  const int64_t i = number % all * gpu::kEight;
  const int count = eight_of(half - i);
  const float* const cosines = a.table + head / a.heads * a.rotary + i;
  const T* const x = a.x + head * a.head_dim + i;
  T* const y = a.y + head * a.head_dim + i;
  float c[gpu::kEight], s[gpu::kEight], low[gpu::kEight], high[gpu::kEight];
  gpu::load8(c, cosines, count, packed);
  gpu::load8(s, cosines + half, count, packed);
  gpu::load8(low, x, count, packed);
  gpu::load8(high, x + half, count, packed);
  const float sign = a.inverse ? -1.0F : 1.0F;
  PL_UNROLL
  for (int k = 0; k < gpu::kEight; ++k) {
    const float sine = s[k] * sign;
    const float turned = low[k] * c[k] - high[k] * sine;
    high[k] = high[k] * c[k] + low[k] * sine;
    low[k] = turned;
  }
  gpu::store8(y, low, count, packed);
  gpu::store8(y + half, high, count, packed);
}

}  // namespace

BoundCall bind_gpu_rope_table(const GpuBinding& b) {
  using at = operand::rope_table;
  const RopeTable args{b.input<int32_t>(at::positions),
                       b.input<int32_t>(at::seq_starts),
                       b.input<float>(at::inv_freq),
                       b.input<double>(at::step),
                       b.op().axis,
                       b.output<float>(at::table),
                       b.input_tensor(at::positions).shape[0],
                       b.input_tensor(at::inv_freq).shape[1] - 1,
                       position_factor(b.op())};
  return [args, &stream = b.stream(), blocks = gpu::blocks_of(args.tokens * args.half, kRopeThreads)] {
    gpu::launch(stream, {blocks}, {kRopeThreads}, make_table, args);
  };
}

BoundCall bind_gpu_rope(const GpuBinding& b) {
  using at = operand::rope;
  return with_gpu_type(b, b.input_tensor(at::x).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const auto args = rope_args<T>(b);
    const auto eights_of = [](int64_t values) { return (values + gpu::kEight - 1) / gpu::kEight; };
    const int64_t eights = eights_of(args.rotary / 2);
    const int64_t all = eights + eights_of(args.head_dim - args.rotary);
    const unsigned blocks = gpu::blocks_of(args.tokens * args.heads * all, kRopeThreads);
    return [=, &stream = b.stream()] {
      gpu::launch(stream, {blocks}, {kRopeThreads}, rotate<T>, args, eights, all);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
