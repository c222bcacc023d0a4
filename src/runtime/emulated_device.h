// A GPU that is not there: kernels of src/ops/*_gpu.cu on the emulated card (gpu/emulator.h), with memory
// that the host does not reach and queues that run in any order that the waits between them allow. Slow, for
// tests.
#pragma once

#include <memory>
#include <string>

#include "device/description.h"
#include "gpu/emulated_card.h"
#include "gpu/product_library.h"
#include "runtime/gpu_device.h"

namespace plimsoll {

class EmulatedDevice : public GpuDevice {
 public:
  // `facts`: what grids and workspaces were planned by.
  explicit EmulatedDevice(gpu::EmulatedOrder order = {}, const CardFacts& facts = {});
  // A device on a variant of the emulated card, or with a library, for tests.
  explicit EmulatedDevice(std::unique_ptr<gpu::EmulatedCard> card,
                          std::unique_ptr<gpu::ProductLibrary> library = nullptr);

  // By PLIMSOLL_EMULATED_CODE, for tests: compute capabilities that a build has code for ("75,120").
  [[nodiscard]] std::string loading_note() const override;

 protected:
  // Throws UsageError for what no kernel for GPUs does yet.
  BoundCall bind_kernels(const Graph& graph, const Op& op, const AddressOf& address, const Sent& sent,
                         gpu::Stream& stream) override;
  void launch_sums(std::span<const std::byte> pieces, int64_t ranks, DType dtype, std::byte* sums,
                   gpu::Stream& stream) override;

 private:
  CardFacts facts_;
  std::unique_ptr<gpu::ProductLibrary> library_;
};

// Reads PLIMSOLL_EMULATED_ORDER: at-once, late, or the number of a shuffled order; shuffled where it is not
// set. Throws UsageError for anything else.
gpu::EmulatedOrder emulated_order();

// Reads PLIMSOLL_EMULATED_TRAP: the number of the launch that fails as a trap of a kernel's does; 0 where it
// is not set. Throws UsageError for anything else.
int64_t emulated_trap();

// The kernels of a run in words: its bits are promised only where these are the same.
std::string emulated_kernels_text();

}  // namespace plimsoll
