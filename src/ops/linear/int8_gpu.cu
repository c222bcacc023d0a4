// int8_dequantize, with the bits of the CPU's: no sums.
#include "ops/gpu_dispatch.h"
#include "ops/linear/int8_args.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kInt8Threads = 256;

template <class T>
struct DequantizeInt8 {
  const int8_t* codes;
  const float* absmax;
  T* weight;
  int64_t rows;
  int64_t width;
};

struct alignas(gpu::kEight) EightCodes {
  int8_t v[gpu::kEight] = {};
};

// A thread for eight weights, which lie in one row where its width is a multiple of eight.
template <class T>
__global__ void __launch_bounds__(kInt8Threads) dequantize_int8(DequantizeInt8<T> a) {
  const int64_t all = a.rows * a.width;
  const int64_t at = (int64_t{blockIdx.x} * kInt8Threads + threadIdx.x) * gpu::kEight;
  if (at >= all) return;
  const int count = all - at < gpu::kEight ? static_cast<int>(all - at) : gpu::kEight;
  int64_t row = at / a.width;
  int64_t left = (row + 1) * a.width - at;  // weights of the row
  float step = a.absmax[row] * kInt8Step;
  EightCodes codes;
  if (count == gpu::kEight)
    codes = *reinterpret_cast<const EightCodes*>(a.codes + at);
  else
    for (int i = 0; i < count; ++i) codes.v[i] = a.codes[at + i];
  float values[gpu::kEight] = {};
  PL_UNROLL
  for (int i = 0; i < gpu::kEight; ++i) {
    if (i >= count) continue;
    if (left == 0) {
      left = a.width;
      step = a.absmax[++row] * kInt8Step;
    }
    values[i] = static_cast<float>(codes.v[i]) * step;
    --left;
  }
  gpu::store8(a.weight + at, values, count, count == gpu::kEight);
}

}  // namespace

BoundCall bind_gpu_int8_dequantize(const GpuBinding& b) {
  using at = operand::int8_dequantize;
  return with_gpu_type(b, b.output_tensor(at::weight).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const auto args = int8_dequantize_args<DequantizeInt8<T>, T>(b);
    return [args, &stream = b.stream()] {
      gpu::launch(stream, {gpu::blocks_of(args.rows * args.width, int64_t{kInt8Threads} * gpu::kEight)},
                  {kInt8Threads}, dequantize_int8<T>, args);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
