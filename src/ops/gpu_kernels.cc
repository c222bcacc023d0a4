#include <array>

#include "graph/op_kind.h"
#include "ops/gpu_dispatch.h"
#include "ops/rule.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

std::array<GpuBindFunction, kNumOpKinds> make_table() {
  std::array<GpuBindFunction, kNumOpKinds> table{};
#define GPU_OP(name) table[static_cast<size_t>(OpKind::name)] = bind_gpu_##name;
#include "ops/gpu_kernels.def"
#undef GPU_OP
  return table;
}

GpuBindFunction bind_function(OpKind kind) {
  static const std::array<GpuBindFunction, kNumOpKinds> table = make_table();
  return table[static_cast<size_t>(kind)];
}

}  // namespace

bool has_gpu_kernel(OpKind kind) { return bind_function(kind) != nullptr; }

void require_gpu_kernels(const Graph& graph) {
  for (const Op& op : graph.ops())
    if (!is_transfer(op.kind) && !has_gpu_kernel(op.kind))
      throw UsageError("program " + graph.name() + ": " + std::string(to_string(op.kind)) +
                       " has no kernel for GPUs yet; choose device: cpu (--device cpu)");
}

BoundCall bind_gpu(const GpuBinding& binding) {
  const GpuBindFunction bind = bind_function(binding.op().kind);
  check_internal(bind != nullptr, "no GPU kernel: " + print_op(binding.graph(), binding.op()));
  return bind(binding);
}

void refuse_on_gpu(const GpuBinding& binding, const std::string& why) {
  throw UsageError("no kernel for GPUs does this yet: " + why + " (" +
                   print_op(binding.graph(), binding.op()) + "); choose device: cpu (--device cpu)");
}

void require_tensor_cores(const GpuBinding& binding, DType dtype) {
  constexpr int kFirstWithBf16 = 80;
  if (dtype == DType::bf16 && binding.card().compute_capability < kFirstWithBf16)
    refuse_on_gpu(binding, "products of bf16 on a card of compute capability " +
                               std::to_string(binding.card().compute_capability / 10) + "." +
                               std::to_string(binding.card().compute_capability % 10) +
                               ", where they begin with 8.0");
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
