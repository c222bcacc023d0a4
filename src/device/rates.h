// The speed of a device: tables of measured times, read between their points. Another kind of device brings
// another table, from a file, not other code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace plimsoll {

// C [m, n] (+)= A [m, k] * B [k, n]; row-major, `a_transposed` means A is stored [k, m], `b_transposed` [n,
// k]. A fused adapter is one more pair, [m, adapter] and [adapter, n] stored likewise, that is summed in the same
// product; a product over rows (a_transposed) has no adapter.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  bool a_transposed = false;
  bool b_transposed = false;
  int64_t adapter = 0;
  friend bool operator==(const MatmulShape&, const MatmulShape&) = default;
};

// A product of bf16 matrices that sums over the rows of both, where one has few columns, as the gradients of
// adapters do: vectors run it on machines with tiles too.
inline constexpr int64_t kThinColumnsAtMost = 16;
bool is_thin(const MatmulShape& shape);

// FLOP/s of one form of product (types and transposition of `form`) over a grid of sizes.
struct MatmulGrid {
  MatmulShape form;                // its m, n and k are not used
  std::vector<int64_t> m, n, k;    // ascending
  std::vector<double> flop_rates;  // [m][n][k]
};

// Work per second of one op: bytes per second over the bytes it moves, or for attention FLOP/s over the
// length of a sequence.
struct RatePoint {
  double at = 0;
  double rate = 0;
};
struct RateCurve {
  std::string op;
  DType dtype = DType::f32;       // of the largest tensor that the op touches
  int64_t head_dim = 0;           // attention only
  std::vector<RatePoint> points;  // ascending in `at`
};

// FLOP/s and bytes/s are over all threads. The defaults stand for no machine: golden dumps use them.
struct DeviceRates {
  double matmul_f32 = 1.5e11;
  double matmul_bf16 = 1.5e11;
  double vector_bf16 = 1.5e11;  // of bf16 where no tiles run it: attention, thin products
  // f16 is multiplied as fast as bf16, where a CPU has f32's rates, and a fused adapter is a product of its own.
  bool of_card = false;
  double bandwidth = 2.0e10;  // of what has no curve, reads and writes together
  double op_overhead = 0;     // seconds that the smallest op takes
  double host_copy = 8.0e9;   // bytes copied per second by the I/O queue between host and device
  double disk_read = 1.5e9;
  double disk_write = 1.0e9;
  bool disk_measured = false;  // disk_read and disk_write are those of a disk that was timed
  double page_touch = 2.0e9;   // bytes of fresh memory made usable per second
  bool calibrated = false;
  std::string note;  // what the reader of a plan should know about these rates, or empty
  std::vector<MatmulGrid> matmuls;
  std::vector<RateCurve> ops;
};

// Logarithms are interpolated in logarithms of the sizes; beyond the grid its edge holds. Where no grid has
// the form, the seconds by matmul_f32, matmul_bf16 or of thin ones vector_bf16, and those of its bytes by
// the bandwidth.
double matmul_seconds(const DeviceRates& rates, const MatmulShape& shape);

// The type whose rates `dtype` has.
inline DType rated_as(const DeviceRates& rates, DType dtype) {
  return dtype != DType::f16 ? dtype : rates.of_card ? DType::bf16 : DType::f32;
}

// The curve of an op, in its type if there is one, else in another; nullptr: none. Attention takes the
// nearest head size.
const RateCurve* find_curve(const DeviceRates& rates, std::string_view op, DType dtype, int64_t head_dim = 0);
double rate_at(const RateCurve& curve, double at);

// Checks that every number is usable: sizes ascend, rates are positive and finite, grids are complete.
// Returns the reason where one is not, else an empty text.
std::string fault_of(const DeviceRates& rates);

}  // namespace plimsoll
