// The values that binding an op may ask for, whatever the backend. Addresses are those of the arena and stay
// valid as long as the executor.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "graph/graph.h"
#include "ops/operands.h"

namespace plimsoll {

// Runs the op, or puts it into the device's queue; allocates nothing.
using BoundCall = std::function<void()>;

class Binding {
 public:
  Binding(const Graph& graph, const Op& op, std::function<std::byte*(TensorId)> address)
      : graph_(graph), op_(op), address_(std::move(address)) {}

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const Op& op() const { return op_; }
  // Operands are asked for by name (ops/operands.h): input_tensor(operand::rms_norm::x).
  template <class Number>
  [[nodiscard]] const Tensor& input_tensor(Number i) const {
    static_assert(is_input<Number>, "inputs have names: ops/operands.h");
    return graph_.tensor(op_.inputs[i]);
  }
  template <class Number>
  [[nodiscard]] const Tensor& output_tensor(Number i) const {
    static_assert(is_output<Number>, "outputs have names: ops/operands.h");
    return graph_.tensor(op_.outputs[i]);
  }
  template <class Number>
  [[nodiscard]] bool has_input(Number i) const {
    static_assert(is_input<Number>, "inputs have names: ops/operands.h");
    return op_.has_input(i);
  }
  template <class Number>
  [[nodiscard]] bool has_output(Number i) const {
    static_assert(is_output<Number>, "outputs have names: ops/operands.h");
    return op_.has_output(i);
  }

  // Address of an input or output; nullptr where an optional one is absent.
  template <class T = void, class Number>
  [[nodiscard]] const T* input(Number i) const {
    static_assert(is_input<Number>, "inputs have names: ops/operands.h");
    return op_.has_input(i) ? reinterpret_cast<const T*>(address_(op_.inputs[i])) : nullptr;
  }
  template <class T = void, class Number>
  [[nodiscard]] T* output(Number i) const {
    static_assert(is_output<Number>, "outputs have names: ops/operands.h");
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
