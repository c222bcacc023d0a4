#include "runtime/toy_device.h"

namespace plimsoll {

BoundCall ToyDevice::bind(const Graph& graph, const Op& op, const AddressOf& address) {
  return [this, call = CpuDevice::bind(graph, op, address)] {
    ++calls_;
    call();
  };
}

std::string toy_kernels_text(const CpuSettings& settings) { return "toy: " + kernels_text(settings); }

}  // namespace plimsoll
