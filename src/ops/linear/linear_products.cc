#include "ops/linear/linear_products.h"

#include "ops/operands.h"
#include "ops/rule.h"

namespace plimsoll {

namespace {

int64_t adapter_rank_of(const Graph& g, const Op& op, size_t t) {
  return op.has_input(t) ? input_tensor(g, op, t).shape[1] : 0;
}

}  // namespace

MatmulShape linear_product(const Graph& g, const Op& op) {
  using at = operand::linear;
  const Tensor& x = input_tensor(g, op, at::x);
  const Tensor& w = input_tensor(g, op, at::weight);
  return {x.shape[0], w.shape[0], x.shape[1],
          x.dtype,    w.dtype,    x.dtype,
          false,      true,       adapter_rank_of(g, op, at::t)};
}

MatmulShape linear_dx_product(const Graph& g, const Op& op) {
  using at = operand::linear_dx;
  const Tensor& d_y = input_tensor(g, op, at::d_y);
  const Tensor& w = input_tensor(g, op, at::weight);
  return {d_y.shape[0], w.shape[1], w.shape[0],
          d_y.dtype,    w.dtype,    d_y.dtype,
          false,        false,      adapter_rank_of(g, op, at::d_t)};
}

MatmulShape linear_dw_product(const Graph& g, const Op& op) {
  using at = operand::linear_dw;
  const Tensor& x = input_tensor(g, op, at::x);
  const Tensor& d_y = input_tensor(g, op, at::d_y);
  return {d_y.shape[1], x.shape[1], x.shape[0], d_y.dtype, x.dtype, g.tensor(op.outputs[at::d_weight]).dtype,
          true,         false};
}

}  // namespace plimsoll
