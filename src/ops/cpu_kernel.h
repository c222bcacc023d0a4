// The interface of an op's CPU code: a bind function looks at shapes, types and addresses once and returns a
// call that only runs. Bound calls allocate nothing; what changes from step to step they read from the step
// tensor.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "device/description.h"
#include "graph/graph.h"
#include "ops/binding.h"

namespace plimsoll {

struct CpuSettings {
  Isa isa = Isa::avx2;
  int threads = 1;
};

// Counts up when a kernel gives other bits, or another speed, than before: checkpoints and measured rates say
// with which they were made. 2: attention and stores of bf16 by the BF16 instructions. 3: an adapter's
// product is summed with its base's.
inline constexpr int kKernelGeneration = 3;

// Names all within which bits are promised: "avx512-bf16, 2 threads, kernels 3".
std::string kernels_text(const CpuSettings& settings);

class CpuBinding : public Binding {
 public:
  CpuBinding(const Graph& graph, const Op& op, const CpuSettings& settings,
             std::function<std::byte*(TensorId)> address)
      : Binding(graph, op, std::move(address)), settings_(settings) {}

  [[nodiscard]] const CpuSettings& settings() const { return settings_; }

 private:
  const CpuSettings& settings_;
};

using CpuBindFunction = BoundCall (*)(const CpuBinding&);

// Throws InternalError for an op without CPU kernel.
BoundCall bind_cpu(const CpuBinding& binding);

}  // namespace plimsoll
