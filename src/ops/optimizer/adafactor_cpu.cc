#include "ops/optimizer/adafactor_kernels.h"
#include "ops/optimizer/adafactor_layout.h"
#include "ops/optimizer/optimizer_cpu.h"

namespace plimsoll {
namespace {

constexpr size_t kMaster = 3;

template <class P, class G>
Adafactor<P, G> arguments(const CpuBinding& b) {
  const AdafactorLayout at = adafactor_layout(b.input_tensor(kGradientInput).shape);
  std::byte* const base = b.scratch();
  return {weight_update<P, G>(b, kMaster),
          at.rows,
          at.columns,
          b.output<float>(1),
          b.output<float>(2),
          reinterpret_cast<double*>(base),
          reinterpret_cast<float*>(base + at.row_factors),
          reinterpret_cast<float*>(base + at.column_factors)};
}

}  // namespace

BoundCall bind_adafactor(const CpuBinding& b) {
  return with_update_types(b, kMaster, [&](auto p, auto g) {
    using Args = Adafactor<decltype(p), decltype(g)>;
    return bind_update(b, arguments<decltype(p), decltype(g)>(b), PLIMSOLL_PLAIN_KERNEL(b, adafactor, Args));
  });
}

}  // namespace plimsoll
