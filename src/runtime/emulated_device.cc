#include "runtime/emulated_device.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "ops/gpu_kernel.h"

namespace plimsoll {

EmulatedDevice::EmulatedDevice(gpu::EmulatedOrder order, const CardFacts& facts)
    : GpuDevice(std::make_unique<gpu::EmulatedCard>(order)), facts_(facts) {}

EmulatedDevice::EmulatedDevice(std::unique_ptr<gpu::EmulatedCard> card,
                               std::unique_ptr<gpu::ProductLibrary> library)
    : GpuDevice(std::move(card)), library_(std::move(library)) {}

BoundCall EmulatedDevice::bind_kernels(const Graph& graph, const Op& op, const AddressOf& address,
                                       const Sent& sent, gpu::Stream& stream) {
  return bind_gpu(GpuBinding(graph, op, facts_, stream, address, {library_.get(), sent.of, sent.facts}));
}

gpu::EmulatedOrder emulated_order() {
  const char* const set = std::getenv("PLIMSOLL_EMULATED_ORDER");
  if (set == nullptr) return {};
  const std::string_view text = set;
  if (text == "at-once") return {gpu::emulated::When::at_once};
  if (text == "late") return {gpu::emulated::When::late};
  gpu::EmulatedOrder order;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), order.seed);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size())
    throw UsageError("PLIMSOLL_EMULATED_ORDER: '" + std::string(text) +
                     "' is no order; use at-once, late, or a number, which shuffles");
  return order;
}

std::string emulated_kernels_text() {
  return "emulated card, kernels " + std::to_string(kGpuKernelGeneration);
}

}  // namespace plimsoll
