// Seconds of ops whose rows are shorter than what they are bound for.
#include <algorithm>
#include <cmath>

#include "ops/rule.h"
#include "plan/program/time_model.h"

namespace plimsoll {
namespace {

int64_t filled(int64_t rows, double share) {
  return std::clamp<int64_t>(std::llround(static_cast<double>(rows) * share), 1, rows);
}

// By how much products that stop at the live rows are shorter.
double saved_seconds(const Graph& graph, const Op& op, const DeviceRates& rates, double share) {
  double saved = 0;
  for (const Product& product : work_of(graph, op).products) {
    if (product.live == nullptr) continue;
    MatmulShape live = product.shape;
    live.*product.live = filled(live.*product.live, share);
    saved += matmul_seconds(rates, product.shape) - matmul_seconds(rates, live);
  }
  return saved;
}

double pairs_seconds(const Graph& graph, const Op& op, const DeviceRates& rates, const AxisFilling& axis) {
  OpWork work = work_of(graph, op, rates);
  const double length = axis.length > 0 ? std::min(axis.length, work.at) : work.at;
  if (!op.attrs.contains("keys_of")) {
    work.work *= axis.rows * length / work.at;
  } else {
    const auto most = static_cast<double>(op.attr_int("key_length"));
    work.work *= axis.rows * (axis.keys > 0 ? std::min(axis.keys, most) / most : 1.0);
  }
  work.at = length;
  return std::max(rates.op_overhead, work.work / rate_of(op, work, rates));
}

}  // namespace

double filled_op_seconds(const Graph& graph, const Op& op, const DeviceRates& rates, const Filling& filling) {
  const AxisFilling& axis = filling.axes[static_cast<size_t>(op.axis)];
  switch (rule_of(op.kind).shortens) {
    case Shortens::pairs:
      return pairs_seconds(graph, op, rates, axis);
    case Shortens::rows:
      return std::max(rates.op_overhead, op_seconds(graph, op, rates) * axis.rows);
    case Shortens::targets:
      return std::max(rates.op_overhead, op_seconds(graph, op, rates) * filling.targets);
    case Shortens::products:
      break;
  }
  const double full = op_seconds(graph, op, rates);
  const double saved = is_transfer(op.kind) ? 0 : saved_seconds(graph, op, rates, axis.rows);
  return saved == 0 ? full : std::max(rates.op_overhead, full - saved);
}

}  // namespace plimsoll
