// How an op gets onto the CPU: a bind function looks at shapes, types and addresses once and returns a call
// that only runs. Bound calls allocate nothing; what changes from step to step they read from the step
// tensor.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "device/description.h"
#include "graph/graph.h"

namespace plimsoll {

struct CpuSettings {
  Isa isa = Isa::avx2;
  int threads = 1;
};

// Counts up when a kernel gives other bits, or another speed, than before: checkpoints and measured rates say
// with which they were made. 2: attention and stores of bf16 by the BF16 instructions.
inline constexpr int kKernelGeneration = 2;

// What bits are promised within: "avx512-bf16, 2 threads, kernels 2".
std::string kernels_text(const CpuSettings& settings);

using BoundCall = std::function<void()>;

// What binding one op may ask. Addresses are those of the arena and stay valid as long as the executor.
class CpuBinding {
 public:
  CpuBinding(const Graph& graph, const Op& op, const CpuSettings& settings,
             std::function<std::byte*(TensorId)> address)
      : graph_(graph), op_(op), settings_(settings), address_(std::move(address)) {}

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const Op& op() const { return op_; }
  [[nodiscard]] const CpuSettings& settings() const { return settings_; }
  [[nodiscard]] const Tensor& input_tensor(size_t i) const { return graph_.tensor(op_.inputs[i]); }
  [[nodiscard]] const Tensor& output_tensor(size_t i) const { return graph_.tensor(op_.outputs[i]); }

  // Address of an input or output; nullptr where an optional one is absent.
  template <class T = void>
  [[nodiscard]] const T* input(size_t i) const {
    return op_.has_input(i) ? reinterpret_cast<const T*>(address_(op_.inputs[i])) : nullptr;
  }
  template <class T = void>
  [[nodiscard]] T* output(size_t i) const {
    return op_.has_output(i) ? reinterpret_cast<T*>(address_(op_.outputs[i])) : nullptr;
  }
  // The planned workspace, aligned to 64 bytes; nullptr when the rule asked for none.
  [[nodiscard]] std::byte* scratch() const {
    return op_.scratch == kNoTensor ? nullptr : address_(op_.scratch);
  }

 private:
  const Graph& graph_;
  const Op& op_;
  const CpuSettings& settings_;
  std::function<std::byte*(TensorId)> address_;
};

using CpuBindFunction = BoundCall (*)(const CpuBinding&);

// Throws InternalError for an op without CPU kernel.
BoundCall bind_cpu(const CpuBinding& binding);

}  // namespace plimsoll
