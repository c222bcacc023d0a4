// The interface of an op's GPU code: a bind function looks at shapes, types and addresses once and returns a
// call that launches kernels on the stream. Grids depend on planned sizes, attention's on what was sent
// (ops/attention/gpu_attention_slots.h); what changes from step to step (live tokens, rates, whether a
// gradient is overwritten) kernels read from the step tensor on the device.
//
// Kernel and bind function of an op lie in ops/NAME_gpu.cu, and its line in ops/gpu_kernels.def.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/description.h"
#include "gpu/backend.h"
#include "gpu/product_library.h"
#include "gpu/stream_handle.h"
#include "graph/graph.h"
#include "ops/binding.h"
#include "ops/host_fact.h"
#include "ops/step_values.h"

namespace plimsoll {

inline namespace PLIMSOLL_GPU {

// Counts up when a kernel gives other bits than before.
inline constexpr int kGpuKernelGeneration = 5;

// Products by a library, which gets the number of live rows from the host.
struct LibraryProducts {
  gpu::ProductLibrary* library = nullptr;
  std::function<const std::byte*(TensorId)> sent = nullptr;
  std::vector<HostFact>* facts = nullptr;  // gets what the calls decide by
};

// The stream and the library must outlive the bound calls.
class GpuBinding : public Binding {
 public:
  GpuBinding(const Graph& graph, const Op& op, const CardFacts& card, gpu::Stream& stream,
             std::function<std::byte*(TensorId)> address, const LibraryProducts& products = {})
      : Binding(graph, op, std::move(address)), card_(card), stream_(stream), products_(products) {}

  [[nodiscard]] const CardFacts& card() const { return card_; }
  [[nodiscard]] gpu::Stream& stream() const { return stream_; }
  // nullptr: all products are computed by the kernels here.
  [[nodiscard]] gpu::ProductLibrary* library() const { return products_.library; }
  // The host's copy of input i as the op will find it when its call launches; nullptr: there is none, or no
  // library asks for it. `fact(values)` is all of it that the call may decide by.
  template <class T, class Number, class Fact>
  [[nodiscard]] const T* sent(Number i, const Fact& fact) const {
    const T* const values = library() == nullptr ? nullptr : sent<T>(i);
    if (values != nullptr && products_.facts != nullptr)
      products_.facts->push_back([values, fact] { return static_cast<int64_t>(fact(values)); });
    return values;
  }
  // The same for what no result depends on, such as how many blocks have something to do; nullptr: nowhere. A
  // call that is captured must not look: the values are others when the graph is launched.
  template <class T, class Number>
  [[nodiscard]] const T* sent(Number i) const {
    static_assert(is_input<Number>, "inputs have names: ops/operands.h");
    if (!op().has_input(i) || products_.sent == nullptr) return nullptr;
    return reinterpret_cast<const T*>(products_.sent(op().inputs[i]));
  }

 private:
  const CardFacts& card_;
  gpu::Stream& stream_;
  LibraryProducts products_;
};

using GpuBindFunction = BoundCall (*)(const GpuBinding&);

// Returns true if the op has a kernel for GPUs; transfers need none.
bool has_gpu_kernel(OpKind kind);
// Throws UsageError that names the first op of `graph` that has none.
void require_gpu_kernels(const Graph& graph);

// Throws UsageError where the kernel does not do what this op asks (a type, a size), InternalError for an op
// without kernel.
BoundCall bind_gpu(const GpuBinding& binding);

// Throws the error of a bind function for what its kernel does not do.
[[noreturn]] void refuse_on_gpu(const GpuBinding& binding, const std::string& why);
// For kernels that multiply values of `dtype` by tensor cores: refuses those that the card's do not take.
void require_tensor_cores(const GpuBinding& binding, DType dtype);

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
