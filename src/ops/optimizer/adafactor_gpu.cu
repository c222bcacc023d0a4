// adafactor (ops/optimizer/adafactor_kernels.h): row averages, column averages, the update's root mean
// square, and the update itself, each a visit of the gradient by kernels that sum in an order of their own.
#include "ops/optimizer/adafactor_args.h"
#include "ops/optimizer/adafactor_kernels.h"
#include "ops/optimizer/gpu_optimizer.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr int kAdafactorThreads = 256;
constexpr int kWarps = kAdafactorThreads / gpu::kWarpSize;
constexpr int64_t kRowsAtATime = 64;  // rows whose sum of squares is a partial sum

template <class P, class G>
struct Factored {
  GpuWeightUpdate<P, G> update;
  int64_t rows, columns;
  float* row;  // null for a vector
  float* column;
  // Workspace.
  double* sums;  // [rows]; the first becomes what the update is divided by
  float* row_factors;
  float* column_factors;

  struct Coefficients {
    float clip, rate, decay;
  };
  [[nodiscard]] PL_DEV Coefficients coefficients() const {
    const double rate = update.learning_rate();
    return {update.clip(), static_cast<float>(rate / sums[0]),
            static_cast<float>(1.0 - rate * update.weight_decay)};
  }
  PL_DEV void update_own(const Coefficients& k, Own own) const {
    const Rounder<P> round(update, RandomFor::weight, own);
    PL_UNROLL
    for (int i = 0; i < kOwnElements; ++i) {
      const int64_t at = own.at(i);
      if (at >= update.count) break;
      const float step = scaled(at / columns, at % columns, k.clip);
      put_weight(update, round, at, i, gpu::fma(-k.rate, step, gpu::to_float(update.weight[at]) * k.decay));
    }
  }

  [[nodiscard]] PL_DEV float gradient(int64_t r, int64_t c, float clip) const {
    return gpu::to_float(update.gradient[r * columns + c]) * clip;
  }
  // The gradient over the root of its second moment.
  [[nodiscard]] PL_DEV float scaled(int64_t r, int64_t c, float clip) const {
    return gradient(r, c, clip) * (row_factors[r] * column_factors[c]);
  }
  // The weight of new values in the averages: step^rate.
  [[nodiscard]] PL_DEV double added() const {
    return pow(step_value(update.step, StepValue::optimizer_step), kAdafactorDecayRate);
  }
};

// The sum of term(column)^2 over the block's row, in every thread.
template <class Term>
PL_DEV double sum_of_squares(int64_t columns, double* parts, Term term) {
  double sum = 0;
  for (int64_t c = threadIdx.x; c < columns; c += kAdafactorThreads) {
    const float value = term(c);
    sum += static_cast<double>(value * value);
  }
  return gpu::block_sum<kAdafactorThreads>(sum, parts);
}

// row = keep * row + add * (mean of g^2 + eps): a block for each row.
template <class P, class G>
__global__ void __launch_bounds__(kAdafactorThreads) average_rows(Factored<P, G> a) {
  if (a.update.does_nothing()) return;
  PL_SHARED(double, parts, kWarps);
  const int64_t r = blockIdx.x;
  const float clip = a.update.clip();
  const double squares = sum_of_squares(a.columns, parts, [&](int64_t c) { return a.gradient(r, c, clip); });
  if (threadIdx.x != 0) return;
  const double add = a.added(), mean = squares / static_cast<double>(a.columns) + kAdafactorEps;
  a.row[r] = static_cast<float>((1.0 - add) * static_cast<double>(a.row[r]) + add * mean);
}

// The factors (row / mean of all rows)^-1/2; one block.
template <class P, class G>
__global__ void __launch_bounds__(kAdafactorThreads) factor_rows(Factored<P, G> a) {
  PL_SHARED(double, parts, kWarps);
  double sum = 0;
  for (int64_t r = threadIdx.x; a.row != nullptr && r < a.rows; r += kAdafactorThreads)
    sum += static_cast<double>(a.row[r]);
  const double mean = gpu::block_sum<kAdafactorThreads>(sum, parts) / static_cast<double>(a.rows);
  for (int64_t r = threadIdx.x; r < a.rows; r += kAdafactorThreads)
    a.row_factors[r] =
        a.row == nullptr ? 1.0F : static_cast<float>(sqrt(mean / static_cast<double>(a.row[r])));
}

// column = keep * column + add * (mean of g^2 + eps), and the factors column^-1/2: a thread for each column.
template <class P, class G>
__global__ void __launch_bounds__(kAdafactorThreads) average_columns(Factored<P, G> a) {
  if (a.update.does_nothing()) return;
  const int64_t c = int64_t{blockIdx.x} * kAdafactorThreads + threadIdx.x;
  if (c >= a.columns) return;
  const float clip = a.update.clip();
  float total = 0;
  for (int64_t first = 0; first < a.rows; first += kRowsAtATime) {
    const int64_t end = first + kRowsAtATime < a.rows ? first + kRowsAtATime : a.rows;
    float sum = 0;
    for (int64_t r = first; r < end; ++r) {
      const float g = a.gradient(r, c, clip);
      sum = gpu::fma(g, g, sum);
    }
    total += sum;
  }
  const double add = a.added();
  const float fresh = gpu::fma(total, static_cast<float>(add / static_cast<double>(a.rows)),
                               static_cast<float>(add * kAdafactorEps));
  const float average = gpu::fma(a.column[c], static_cast<float>(1.0 - add), fresh);
  a.column[c] = average;
  a.column_factors[c] = 1.0F / sqrtf(average);
}

template <class P, class G>
__global__ void __launch_bounds__(kAdafactorThreads) sum_updates(Factored<P, G> a) {
  PL_SHARED(double, parts, kWarps);
  const int64_t r = blockIdx.x;
  const float clip = a.update.clip();
  const double squares = sum_of_squares(a.columns, parts, [&](int64_t c) { return a.scaled(r, c, clip); });
  if (threadIdx.x == 0) a.sums[r] = squares;
}

// The divisor of the update: its root mean square over the threshold, at least 1; one block.
template <class P, class G>
__global__ void __launch_bounds__(kAdafactorThreads) find_divisor(Factored<P, G> a) {
  PL_SHARED(double, parts, kWarps);
  double sum = 0;
  for (int64_t r = threadIdx.x; r < a.rows; r += kAdafactorThreads) sum += a.sums[r];
  sum = gpu::block_sum<kAdafactorThreads>(sum, parts);
  if (threadIdx.x != 0) return;
  const double rms = sqrt(sum / static_cast<double>(a.update.count)) / kAdafactorClipThreshold;
  a.sums[0] = rms < 1.0 ? 1.0 : rms;
}

}  // namespace

BoundCall bind_gpu_adafactor(const GpuBinding& b) {
  return with_gpu_update_types(b, operand::adafactor::master, [&](auto p, auto g) -> BoundCall {
    using P = decltype(p);
    using G = decltype(g);
    const auto a = adafactor_args<Factored<P, G>>(b, gpu_weight_update<P, G>(b, operand::adafactor::master));
    return [a, rows = static_cast<unsigned>(a.rows), apply = bind_gpu_update(b, a), &stream = b.stream()] {
      if (a.row != nullptr) gpu::launch(stream, {rows}, {kAdafactorThreads}, average_rows<P, G>, a);
      gpu::launch(stream, {1}, {kAdafactorThreads}, factor_rows<P, G>, a);
      gpu::launch(stream, {gpu::blocks_of(a.columns, kAdafactorThreads)}, {kAdafactorThreads},
                  average_columns<P, G>, a);
      gpu::launch(stream, {rows}, {kAdafactorThreads}, sum_updates<P, G>, a);
      gpu::launch(stream, {1}, {kAdafactorThreads}, find_divisor<P, G>, a);
      apply();
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
