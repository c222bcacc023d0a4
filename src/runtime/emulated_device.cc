#include "runtime/emulated_device.h"

#include "ops/gpu_kernel.h"

namespace plimsoll {

BoundCall EmulatedDevice::bind(const Graph& graph, const Op& op, const AddressOf& address) {
  return bind_gpu(GpuBinding(graph, op, card_, stream_, address));
}

std::string emulated_kernels_text() {
  return "emulated card, kernels " + std::to_string(kGpuKernelGeneration);
}

}  // namespace plimsoll
