// A GPU that is not there: kernels of src/ops/*_gpu.cu on the emulated card (gpu/emulator.h), in the host's
// memory. Slow, for tests.
#pragma once

#include "gpu/stream.h"
#include "runtime/device.h"

namespace plimsoll {

class EmulatedDevice : public CpuDevice {
 public:
  explicit EmulatedDevice(const CpuSettings& settings) : CpuDevice(settings) {}
  // Throws UsageError for what no kernel for GPUs does yet.
  BoundCall bind(const Graph& graph, const Op& op, const AddressOf& address) override;

 private:
  CardFacts card_;
  gpu::Stream stream_;
};

// What the bits of a run on it are promised within.
std::string emulated_kernels_text();

}  // namespace plimsoll
