// Seconds of ops whose rows are shorter than what they are bound for.
#include <algorithm>
#include <cmath>

#include "graph/op_kind.h"
#include "ops/linear_products.h"
#include "plan/time_model.h"

namespace plimsoll {
namespace {

int64_t filled(int64_t rows, double share) {
  return std::clamp<int64_t>(std::llround(static_cast<double>(rows) * share), 1, rows);
}

// By how much a product of fewer rows is shorter.
double saved(const MatmulShape& full, const MatmulShape& live, const DeviceRates& rates) {
  return matmul_seconds(rates, full) - matmul_seconds(rates, live);
}

double attention_seconds(const Graph& graph, const Op& op, const DeviceRates& rates, const Filling& filling) {
  OpWork work = work_of(graph, op, rates);
  const double length = filling.row_length > 0 ? std::min(filling.row_length, work.at) : work.at;
  work.work *= filling.tokens * length / work.at;
  work.at = length;
  return std::max(rates.op_overhead, work.work / rate_of(op, work, rates));
}

}  // namespace

double filled_op_seconds(const Graph& graph, const Op& op, const DeviceRates& rates, const Filling& filling) {
  const double full = op_seconds(graph, op, rates);
  const auto shorter = [&](MatmulShape shape, int64_t MatmulShape::*rows) {
    const MatmulShape whole = shape;
    shape.*rows = filled(shape.*rows, filling.tokens);
    return std::max(rates.op_overhead, full - saved(whole, shape, rates));
  };
  switch (op.kind) {
    case OpKind::linear:
      return op.has_input(4) ? shorter(linear_product(graph, op), &MatmulShape::m) : full;
    case OpKind::linear_dx:
      return op.has_input(3) ? shorter(linear_dx_product(graph, op), &MatmulShape::m) : full;
    case OpKind::linear_dw:
      return op.has_input(2) ? shorter(linear_dw_product(graph, op), &MatmulShape::k) : full;
    case OpKind::linear_cross_entropy:
    case OpKind::linear_cross_entropy_grad:
    case OpKind::linear_log_prob:
    case OpKind::linear_log_prob_grad:
      return std::max(rates.op_overhead, full * filling.targets);
    case OpKind::rms_norm_grad:
    case OpKind::gla:
    case OpKind::gla_grad:
    case OpKind::short_conv:
    case OpKind::short_conv_grad:
      return std::max(rates.op_overhead, full * filling.tokens);
    case OpKind::attention:
    case OpKind::attention_grad:
      return attention_seconds(graph, op, rates, filling);
    default:
      return full;
  }
}

}  // namespace plimsoll
