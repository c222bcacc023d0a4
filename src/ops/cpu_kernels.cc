#include <algorithm>
#include <array>

#include "graph/op_kind.h"
#include "ops/cpu_dispatch.h"

namespace plimsoll {

std::string kernels_text(const CpuSettings& settings) {
  return std::string(to_string(settings.isa)) + ", " + std::to_string(settings.threads) +
         (settings.threads == 1 ? " thread" : " threads") + ", kernels " + std::to_string(kKernelGeneration);
}

bool computes_in_f16(const CpuBinding& b) {
  const auto is_f16 = [&](TensorId id) {
    return id != kNoTensor && b.graph().tensor(id).dtype == DType::f16;
  };
  return std::ranges::any_of(b.op().inputs, is_f16) || std::ranges::any_of(b.op().outputs, is_f16);
}

void refuse_element_type(const CpuBinding& b, DType dtype) {
  throw InternalError("no CPU kernel for " + std::string(to_string(dtype)) + ": " +
                      print_op(b.graph(), b.op()));
}

BoundCall bind_cpu(const CpuBinding& binding) {
  static constexpr std::array<CpuBindFunction, kNumOpKinds> kBind = {
#define OP(name, ...) bind_##name,
#include "ops/ops.def"
#undef OP
  };
  return kBind[static_cast<size_t>(binding.op().kind)](binding);
}

}  // namespace plimsoll
