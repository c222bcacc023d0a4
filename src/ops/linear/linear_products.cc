#include "ops/linear/linear_products.h"

#include "ops/rule.h"

namespace plimsoll {

namespace {

int64_t rider_of(const Graph& g, const Op& op, size_t t) {
  return op.has_input(t) ? input_tensor(g, op, t).shape[1] : 0;
}

}  // namespace

MatmulShape linear_product(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  const Tensor& w = input_tensor(g, op, 1);
  return {x.shape[0], w.shape[0], x.shape[1], x.dtype, w.dtype, x.dtype, false, true, rider_of(g, op, 5)};
}

MatmulShape linear_dx_product(const Graph& g, const Op& op) {
  const Tensor& d_y = input_tensor(g, op, 0);
  const Tensor& w = input_tensor(g, op, 1);
  return {d_y.shape[0], w.shape[1], w.shape[0], d_y.dtype,         w.dtype,
          d_y.dtype,    false,      false,      rider_of(g, op, 4)};
}

MatmulShape linear_dw_product(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  const Tensor& d_y = input_tensor(g, op, 1);
  return {d_y.shape[1], x.shape[1], x.shape[0], d_y.dtype, x.dtype, g.tensor(op.outputs[0]).dtype,
          true,         false};
}

}  // namespace plimsoll
