#include <vector>

#include "ops/gpu_dispatch.h"
#include "ops/optimizer/grad_norm_kernels.h"
#include "ops/optimizer/optimizer_slices.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr int kGradNormThreads = 256;

// A block of threads sums the squares of kSumOfSquaresBlock values, in f64: they neither overflow nor vanish.
template <class T>
__global__ void __launch_bounds__(kGradNormThreads) sum_block(const T* x, int64_t count, double* partials) {
  PL_SHARED(double, parts, kGradNormThreads / gpu::kWarpSize);
  const int64_t begin = blockIdx.x * kSumOfSquaresBlock;
  const int64_t end = begin + kSumOfSquaresBlock < count ? begin + kSumOfSquaresBlock : count;
  double sum = 0;
  for (int64_t at = begin + threadIdx.x * gpu::kEight; at < end;
       at += int64_t{kGradNormThreads} * gpu::kEight) {
    const int64_t left = end - at;
    const int own = left >= gpu::kEight ? gpu::kEight : static_cast<int>(left);
    float value[gpu::kEight];
    gpu::load8(value, x + at, own, own == gpu::kEight);
    PL_UNROLL
    for (int i = 0; i < gpu::kEight; ++i) sum = gpu::fma(double{value[i]}, double{value[i]}, sum);
  }
  sum = gpu::block_sum<kGradNormThreads>(sum, parts);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// One thread adds them up in order, so that slices give the bits of the whole.
__global__ void add_blocks(const double* partials, int64_t blocks, bool continues, double* square) {
  double total = continues ? *square : 0.0;
  for (int64_t block = 0; block < blocks; ++block) total += partials[block];
  *square = total;
}

struct Squares {
  const double* at[kSquaresOfLaunch];
  int count;
};
// result[0] grows by the squares; the last launch makes it the norm.
__global__ void add_squares(Squares squares, bool first, bool last, double max_norm, const double* step,
                            bool scaled, double* result) {
  double sum = first ? 0.0 : result[0];
  for (int i = 0; i < squares.count; ++i) sum += *squares.at[i];
  result[0] = sum;
  if (!last) return;
  const double scale = scaled ? step_value(step, StepValue::gradient_scale) : 0;
  const GradNorm found = grad_norm_of(sqrt(sum), max_norm, scale);
  result[0] = found.norm;
  result[1] = found.factor;
}

}  // namespace

BoundCall bind_gpu_grad_square(const GpuBinding& b) {
  return with_stored_type(
      b, b.input_tensor(operand::grad_square::gradient).dtype, [&](auto zero) -> BoundCall {
        using T = decltype(zero);
        const ElementRange range = updated_range(b.graph(), b.op(), operand::grad_square::gradient);
        const int64_t piece = piece_of(b.op());
        const int64_t each = piece > 0 ? piece : range.elements;
        // A sum for each rank's piece; else one, to which slices behind the first add.
        return
            [&stream = b.stream(), x = gradient_slice<T>(b, operand::grad_square::gradient),
             all = range.elements, each, partials = reinterpret_cast<double*>(b.scratch()),
             continues = piece == 0 && range.first > 0,
             sums = b.output<double>(operand::grad_square::square) + (piece > 0 ? range.first / piece : 0)] {
              for (int64_t first = 0; first < all; first += each) {
                const int64_t count = each < all - first ? each : all - first;
                const unsigned blocks = gpu::blocks_of(count, kSumOfSquaresBlock);
                gpu::launch(stream, {blocks}, {kGradNormThreads}, sum_block<T>, x + first, count, partials);
                gpu::launch(stream, {1}, {1}, add_blocks, partials, int64_t{blocks}, continues,
                            sums + first / each);
              }
            };
      });
}

BoundCall bind_gpu_grad_norm(const GpuBinding& b) {
  std::vector<Squares> launches;
  const auto add = [&](const double* square) {
    if (launches.empty() || launches.back().count == kSquaresOfLaunch) launches.push_back({});
    Squares& last = launches.back();
    last.at[last.count++] = square;
  };
  for (size_t i = operand::grad_norm::squares; i < b.op().inputs.size(); ++i)
    for (int64_t rank = 0; rank < b.input_tensor(i).shape.elements(); ++rank) add(b.input<double>(i) + rank);
  return [launches, &stream = b.stream(), max_norm = b.op().attr_float("max_norm"),
          step = b.input<double>(operand::grad_norm::step), scaled = is_scaled(b.op()),
          result = b.output<double>(operand::grad_norm::norm)] {
    for (size_t i = 0; i < launches.size(); ++i)
      gpu::launch(stream, {1}, {1}, add_squares, launches[i], i == 0, i + 1 == launches.size(), max_norm,
                  step, scaled, result);
  };
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
