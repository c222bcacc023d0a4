#include "harness/gpu_harness.h"

#include <algorithm>

#include "graph/op_kind.h"
#include "ops/attention/attention_shape.h"
#include "ops/operands.h"
#include "ops/rule.h"

namespace plimsoll::harness {

bool has_gpu_kernels(const Graph& graph) {
  return std::all_of(graph.ops().begin(), graph.ops().end(),
                     [](const Op& op) { return has_gpu_kernel(op.kind); });
}

std::vector<DType> gpu_dtypes(const OpCase& c) {
  std::vector<DType> dtypes = c.dtypes;
  if (dtypes.size() < 2 || std::ranges::find(dtypes, DType::f32) == dtypes.end()) return dtypes;
  const auto is_gradient = [](const Tensor& t) { return t.role == Role::gradient && t.dtype == DType::f16; };
  if (std::ranges::none_of(make_graph(c, DType::f16).tensors(), is_gradient)) dtypes.push_back(DType::f16);
  return dtypes;
}

std::vector<OpCase> gpu_cases() {
  std::vector<OpCase> cases;
  for (const OpCase& c : all_cases())
    if (has_gpu_kernels(make_graph(c, c.dtypes.front()))) cases.push_back(c);
  return cases;
}

bool runs_code_of_others(const OpCase& c) {
  return std::ranges::find(kCodeOfOthers, c.name) != std::end(kCodeOfOthers);
}

bool has_products(OpKind kind) {
  switch (kind) {
    case OpKind::linear:
    case OpKind::linear_dx:
    case OpKind::linear_dw:
    case OpKind::linear_cross_entropy:
    case OpKind::linear_cross_entropy_grad:
    case OpKind::linear_log_prob:
    case OpKind::linear_log_prob_grad:
      return true;
    default:
      return false;
  }
}

std::vector<CardFacts> cards_for(const Graph& graph) {
  constexpr int64_t kRows = 256;  // of all heads: two blocks of tall tiles
  const auto chooses = [&](const Op& op) {
    return op.kind == OpKind::attention && !has_parents(op) &&
           graph.tensor(op.inputs[operand::attention::q]).dtype != DType::f32 &&
           graph.tensor(op.outputs[operand::attention::lse]).shape.elements() >= kRows;
  };
  if (std::none_of(graph.ops().begin(), graph.ops().end(), chooses)) return {{}};
  // One that little keeps busy, and the same with more shared memory.
  return {{}, {86, 1, 99 * 1024}, {80, 1, 163 * 1024}};
}

namespace {

// Runs what is launched at once, and counts it.
class CountedLaunches : public gpu::LaunchTaker {
 public:
  void take(std::function<void()> launch) override {
    ++count;
    launch();
  }
  int64_t count = 0;
};

std::string launches_fault(const Graph& graph, const Op& op, int64_t launched, bool library) {
  const int64_t planned = gpu_launches(graph, op, library);
  if (library ? launched <= planned : launched == planned) return "";
  return std::string(to_string(op.kind)) + " launched " + std::to_string(launched) +
         " kernels, and gpu_launches() says " + std::to_string(planned);
}

}  // namespace

OpRun run_emulated(
    const Graph& graph, const std::vector<Values>& values, gpu::emulated::Order order,
    std::optional<Sharing> sharing,
    const std::function<void(const Graph&, const Op&, const AddressOf&, const BoundCall&)>& around,
    const CardFacts& card, gpu::ProductLibrary* library) {
  DeviceDescription device = as_emulated(reference_description());
  device.card = card;
  constexpr int64_t kLibraryWorkspace = 4096;
  if (library != nullptr) device.matmul_scratch_bytes = [](const MatmulShape&) { return kLibraryWorkspace; };
  CountedLaunches launches;
  gpu::Stream stream(static_cast<gpu::LaunchTaker*>(&launches));
  std::vector<std::string> faults;
  gpu::emulated::settings() = {order, 7, static_cast<size_t>(device.card.shared_bytes_per_block)};
  OpRun run = run_ops(
      graph, values, device,
      [&](const Graph& planned, const Op& op, const AddressOf& address) {
        const BoundCall call =
            bind_gpu(GpuBinding(planned, op, device.card, stream, address, {library, address}));
        const int64_t before = launches.count;
        if (around) {
          around(planned, op, address, call);
        } else {
          call();
        }
        const std::string fault = launches_fault(planned, op, launches.count - before, library != nullptr);
        if (!fault.empty()) faults.push_back(fault);
      },
      sharing);
  run.faults.insert(run.faults.end(), faults.begin(), faults.end());
  return run;
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
