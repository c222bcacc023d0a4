#include "harness/gpu_harness.h"

#include <algorithm>

namespace plimsoll::harness {

bool has_gpu_kernels(const Graph& graph) {
  return std::all_of(graph.ops().begin(), graph.ops().end(),
                     [](const Op& op) { return has_gpu_kernel(op.kind) && !shares_prefixes(op); });
}

std::vector<OpCase> gpu_cases() {
  std::vector<OpCase> cases;
  for (const OpCase& c : all_cases())
    if (has_gpu_kernels(make_graph(c, c.dtypes.front()))) cases.push_back(c);
  return cases;
}

OpRun run_emulated(
    const Graph& graph, const std::vector<Values>& values, gpu::emulated::Order order,
    std::optional<Sharing> sharing,
    const std::function<void(const Graph&, const Op&, const AddressOf&, const BoundCall&)>& around,
    const CardFacts& card) {
  DeviceDescription device = as_emulated(reference_description());
  device.card = card;
  gpu::Stream stream;
  gpu::emulated::settings() = {order, 7, static_cast<size_t>(device.card.shared_bytes_per_block)};
  return run_ops(
      graph, values, device,
      [&](const Graph& planned, const Op& op, const AddressOf& address) {
        const BoundCall call = bind_gpu(GpuBinding(planned, op, device.card, stream, address));
        if (around) {
          around(planned, op, address, call);
        } else {
          call();
        }
      },
      sharing);
}

std::span<std::byte> whole_arena(const Graph& graph, const AddressOf& address) {
  std::byte* begin = address(0);
  std::byte* end = begin;
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    std::byte* at = address(static_cast<TensorId>(i));
    begin = std::min(begin, at);
    end = std::max(end, at + graph.tensors()[i].bytes());
  }
  return {begin - kGuard, static_cast<size_t>(end - begin) + 2 * kGuard};
}

}  // namespace plimsoll::harness
