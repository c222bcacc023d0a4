#include "runtime/emulated_device.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/format.h"
#include "gpu/launch_limits.h"
#include "ops/gpu_kernel.h"
#include "ops/optimizer/gpu_rank_sum.h"

namespace plimsoll {

namespace {

std::unique_ptr<gpu::EmulatedCard> card_with_trap(gpu::EmulatedOrder order) {
  auto card = std::make_unique<gpu::EmulatedCard>(order);
  card->trap_at(emulated_trap());
  return card;
}

// All of it.
template <class T>
bool read_number(std::string_view text, T& number) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return !text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size();
}

}  // namespace

EmulatedDevice::EmulatedDevice(gpu::EmulatedOrder order, const CardFacts& facts)
    : GpuDevice(card_with_trap(order)), facts_(facts) {}

EmulatedDevice::EmulatedDevice(std::unique_ptr<gpu::EmulatedCard> card,
                               std::unique_ptr<gpu::ProductLibrary> library)
    : GpuDevice(std::move(card)), library_(std::move(library)) {}

std::string EmulatedDevice::loading_note() const {
  const char* const code = std::getenv("PLIMSOLL_EMULATED_CODE");
  return code == nullptr ? "" : gpu::compile_note(code, facts_.compute_capability);
}

BoundCall EmulatedDevice::bind_kernels(const Graph& graph, const Op& op, const AddressOf& address,
                                       const Sent& sent, gpu::Stream& stream) {
  return bind_gpu(GpuBinding(graph, op, facts_, stream, address, {library_.get(), sent.of, sent.facts}));
}

void EmulatedDevice::launch_sums(std::span<const std::byte> pieces, int64_t ranks, DType dtype,
                                 std::byte* sums, gpu::Stream& stream) {
  launch_rank_sum(stream, pieces, ranks, dtype, sums);
}

gpu::EmulatedOrder emulated_order() {
  const char* const set = std::getenv("PLIMSOLL_EMULATED_ORDER");
  if (set == nullptr) return {};
  const std::string_view text = set;
  if (text == "at-once") return {gpu::emulated::When::at_once};
  if (text == "late") return {gpu::emulated::When::late};
  gpu::EmulatedOrder order;
  if (!read_number(text, order.seed))
    throw UsageError(formatted(
        "PLIMSOLL_EMULATED_ORDER: '{}' is no order; use at-once, late, or a number, which shuffles", text));
  return order;
}

int64_t emulated_trap() {
  const char* const set = std::getenv("PLIMSOLL_EMULATED_TRAP");
  int64_t launch = 0;
  if (set != nullptr && (!read_number(set, launch) || launch < 1))
    throw UsageError(formatted("PLIMSOLL_EMULATED_TRAP: '{}' is no launch; use its number, from 1 on", set));
  return launch;
}

std::string emulated_kernels_text() {
  return "emulated card, kernels " + std::to_string(kGpuKernelGeneration);
}

}  // namespace plimsoll
