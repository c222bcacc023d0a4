// The values that binding an op may ask for, whatever the backend. Addresses are those of the arena and stay
// valid as long as the executor.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "graph/graph.h"

namespace plimsoll {

// Runs the op, or puts it into the device's queue; allocates nothing.
using BoundCall = std::function<void()>;

class Binding {
 public:
  Binding(const Graph& graph, const Op& op, std::function<std::byte*(TensorId)> address)
      : graph_(graph), op_(op), address_(std::move(address)) {}

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const Op& op() const { return op_; }
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
  std::function<std::byte*(TensorId)> address_;
};

}  // namespace plimsoll
