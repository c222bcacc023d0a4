#include "base/units.h"
#include "ops/adafactor_kernels.h"
#include "ops/optimizer_cpu.h"

namespace plimsoll {
namespace {

constexpr size_t kMaster = 3;
constexpr int64_t kLine = 64;

template <class P, class G>
Adafactor<P, G> arguments(const CpuBinding& b) {
  const Shape& shape = b.input_tensor(kGradientInput).shape;
  const int64_t rows = shape.rank() > 1 ? shape[0] : 1;
  std::byte* const sums = b.scratch();
  std::byte* const row_factors = sums + round_up(rows * int64_t{sizeof(double)}, kLine);
  std::byte* const column_factors = row_factors + round_up(rows * int64_t{sizeof(float)}, kLine);
  return {weight_update<P, G>(b, kMaster),
          rows,
          shape[shape.rank() - 1],
          b.output<float>(1),
          b.output<float>(2),
          reinterpret_cast<double*>(sums),
          reinterpret_cast<float*>(row_factors),
          reinterpret_cast<float*>(column_factors)};
}

}  // namespace

BoundCall bind_adafactor(const CpuBinding& b) {
  return with_update_types(b, kMaster, [&](auto p, auto g) {
    using Args = Adafactor<decltype(p), decltype(g)>;
    return bind_update(b, arguments<decltype(p), decltype(g)>(b),
                       pick<Args>(b.settings().isa, avx2::adafactor, avx512::adafactor));
  });
}

}  // namespace plimsoll
