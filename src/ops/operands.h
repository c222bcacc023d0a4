// The operands of ops by name, from ops/ops.def: operand::rms_norm::x is the number of that input, y that of
// an output. Rules, bindings and tests ask for operands by these; scripts/check_operands.py finds numbers.
//
//   using at = operand::rms_norm;
//   const Tensor& weight = b.input_tensor(at::weight);
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <vector>

#include "graph/graph.h"

namespace plimsoll {

namespace operand {

#define MAYBE(name) name
#define MANY(name) name
#define IN(...) enum In : size_t { __VA_ARGS__ };
#define OUT(...) enum Out : size_t { __VA_ARGS__ };
#define OP(name, in, out) \
  struct name {           \
    in out                \
  };
#include "ops/ops.def"
#undef OP
#undef OUT
#undef IN

}  // namespace operand

// True for a type that numbers inputs, or outputs: the names of an op, or a number that was found out
// (size_t). Those of one are not those of the other, and a number that is written down (int) is neither.
template <class Number>
inline constexpr bool is_input = std::is_same_v<Number, size_t>;
template <class Number>
inline constexpr bool is_output = std::is_same_v<Number, size_t>;
#define OP(name, in, out)                                   \
  template <>                                               \
  inline constexpr bool is_input<operand::name::In> = true; \
  template <>                                               \
  inline constexpr bool is_output<operand::name::Out> = true;
#include "ops/ops.def"
#undef OP
#undef MANY
#undef MAYBE

struct OperandName {
  std::string_view name;
  bool optional = false;  // may be absent
  bool many = false;      // stands for all that follow
};
struct OperandNames {
  std::vector<OperandName> inputs, outputs;
};
const OperandNames& operand_names(OpKind kind);
// Throws InternalError that names the operand, where one is missing that is not optional, or where there are
// too many.
void require_operands(const Graph& graph, const Op& op);

}  // namespace plimsoll
