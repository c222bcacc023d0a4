#include <array>

#include "ops/cpu_dispatch.h"

namespace plimsoll {

BoundCall bind_cpu(const CpuBinding& binding) {
  static constexpr std::array<CpuBindFunction, kNumOpKinds> kBind = {
#define OP(name) bind_##name,
#include "ops/ops.def"
#undef OP
  };
  return kBind[static_cast<size_t>(binding.op().kind)](binding);
}

}  // namespace plimsoll
