#include "ops/optimizer/adafactor_args.h"
#include "ops/optimizer/adafactor_kernels.h"
#include "ops/optimizer/optimizer_cpu.h"

namespace plimsoll {

BoundCall bind_adafactor(const CpuBinding& b) {
  using at = operand::adafactor;
  return with_update_types(b, at::master, [&](auto p, auto g) {
    using Args = Adafactor<decltype(p), decltype(g)>;
    return bind_update(b, adafactor_args<Args>(b, weight_update<decltype(p), decltype(g)>(b, at::master)),
                       PLIMSOLL_PLAIN_KERNEL(b, adafactor, Args));
  });
}

}  // namespace plimsoll
