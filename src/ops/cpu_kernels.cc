#include <array>

#include "graph/op_kind.h"
#include "ops/cpu_dispatch.h"

namespace plimsoll {

std::string kernels_text(const CpuSettings& settings) {
  return std::string(to_string(settings.isa)) + ", " + std::to_string(settings.threads) +
         (settings.threads == 1 ? " thread" : " threads") + ", kernels " + std::to_string(kKernelGeneration);
}

BoundCall bind_cpu(const CpuBinding& binding) {
  static constexpr std::array<CpuBindFunction, kNumOpKinds> kBind = {
#define OP(name) bind_##name,
#include "ops/ops.def"
#undef OP
  };
  return kBind[static_cast<size_t>(binding.op().kind)](binding);
}

}  // namespace plimsoll
