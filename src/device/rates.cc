#include "device/rates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace plimsoll {
namespace {

// Between which two points of an ascending axis a size lies, and how far along, in logarithms.
struct Position {
  size_t low = 0, high = 0;
  double share = 0;  // of `high`
};

template <class T, class At>
Position locate(const std::vector<T>& axis, double size, At at) {
  const auto above = std::find_if(axis.begin(), axis.end(), [&](const T& x) { return at(x) >= size; });
  if (above == axis.begin()) return {};
  if (above == axis.end()) return {axis.size() - 1, axis.size() - 1, 0};
  const auto high = static_cast<size_t>(above - axis.begin());
  const double from = std::log(at(axis[high - 1]));
  return {high - 1, high, (std::log(size) - from) / (std::log(at(axis[high])) - from)};
}

Position locate(const std::vector<int64_t>& axis, int64_t size) {
  return locate(axis, static_cast<double>(size), [](int64_t x) { return static_cast<double>(x); });
}

bool same_form(const MatmulShape& a, const MatmulShape& b) {
  return a.a == b.a && a.b == b.b && a.c == b.c && a.a_transposed == b.a_transposed &&
         a.b_transposed == b.b_transposed;
}

double interpolate(const MatmulGrid& grid, const MatmulShape& shape) {
  const std::array<Position, 3> at = {locate(grid.m, shape.m), locate(grid.n, shape.n),
                                      locate(grid.k, shape.k)};
  double log_rate = 0;
  for (unsigned corner = 0; corner < 8; ++corner) {
    double weight = 1;
    std::array<size_t, 3> index{};
    for (size_t axis = 0; axis < 3; ++axis) {
      const bool high = (corner >> axis & 1U) != 0;
      weight *= high ? at[axis].share : 1 - at[axis].share;
      index[axis] = high ? at[axis].high : at[axis].low;
    }
    if (weight == 0) continue;
    const size_t point = (index[0] * grid.n.size() + index[1]) * grid.k.size() + index[2];
    log_rate += weight * std::log(grid.flop_rates[point]);
  }
  return std::exp(log_rate);
}

bool usable(double rate) { return std::isfinite(rate) && rate > 0; }

bool ascends(const std::vector<int64_t>& axis) {
  return !axis.empty() && axis.front() > 0 &&
         std::adjacent_find(axis.begin(), axis.end(), std::greater_equal<>()) == axis.end();
}

std::string fault_of(const MatmulGrid& grid) {
  if (!ascends(grid.m) || !ascends(grid.n) || !ascends(grid.k)) return "a matmul grid's sizes do not ascend";
  if (grid.flop_rates.size() != grid.m.size() * grid.n.size() * grid.k.size())
    return "a matmul grid is incomplete";
  if (!std::all_of(grid.flop_rates.begin(), grid.flop_rates.end(), usable))
    return "a matmul rate is not a positive number";
  return "";
}

std::string fault_of(const RateCurve& curve) {
  double last = 0;
  for (const RatePoint& point : curve.points) {
    if (!usable(point.rate) || !usable(point.at)) return curve.op + ": a rate is not a positive number";
    if (point.at <= last) return curve.op + ": sizes do not ascend";
    last = point.at;
  }
  return curve.points.empty() ? curve.op + ": a curve without points" : "";
}

}  // namespace

bool is_thin(const MatmulShape& shape) {
  return shape.a == DType::bf16 && shape.a_transposed && !shape.b_transposed &&
         std::min(shape.m, shape.n) <= kThinColumnsAtMost;
}

double matmul_seconds(const DeviceRates& rates, const MatmulShape& of) {
  MatmulShape shape = of;
  for (DType* type : {&shape.a, &shape.b, &shape.c}) *type = rated_as(rates, *type);
  if (shape.adapter > 0 && rates.of_card) {
    MatmulShape adapter = shape;
    adapter.k = std::exchange(adapter.adapter, 0);
    shape.adapter = 0;
    const auto added_to = static_cast<double>(of.m * of.n * size_of(of.c));
    return matmul_seconds(rates, shape) + matmul_seconds(rates, adapter) + added_to / rates.bandwidth;
  }
  shape.k += std::exchange(shape.adapter, 0);
  const double flops =
      2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  for (const MatmulGrid& grid : rates.matmuls)
    if (same_form(grid.form, shape)) return std::max(rates.op_overhead, flops / interpolate(grid, shape));
  const double bf16 = is_thin(shape) ? rates.vector_bf16 : rates.matmul_bf16;
  const double peak = shape.a == DType::bf16 ? bf16 : rates.matmul_f32;
  const auto bytes = static_cast<double>(shape.m * shape.k * size_of(of.a) +
                                         shape.k * shape.n * size_of(of.b) + of.m * of.n * size_of(of.c));
  // Packing what a product reads overlaps with nothing: few rows at a time are slow.
  return std::max(rates.op_overhead, flops / peak + bytes / rates.bandwidth);
}

const RateCurve* find_curve(const DeviceRates& rates, std::string_view op, DType dtype, int64_t head_dim) {
  const RateCurve* best = nullptr;
  auto best_distance = std::numeric_limits<int64_t>::max();
  constexpr int64_t kOtherType = int64_t{1} << 32;  // farther than any head size
  for (const RateCurve& curve : rates.ops) {
    if (curve.op != op) continue;
    const int64_t distance = std::abs(curve.head_dim - head_dim) + (curve.dtype == dtype ? 0 : kOtherType);
    if (distance >= best_distance) continue;
    best = &curve;
    best_distance = distance;
  }
  return best;
}

double rate_at(const RateCurve& curve, double at) {
  const Position p = locate(curve.points, at, [](const RatePoint& point) { return point.at; });
  return std::exp((1 - p.share) * std::log(curve.points[p.low].rate) +
                  p.share * std::log(curve.points[p.high].rate));
}

std::string fault_of(const DeviceRates& rates) {
  for (const double rate : {rates.matmul_f32, rates.matmul_bf16, rates.vector_bf16, rates.bandwidth,
                            rates.host_copy, rates.disk_read, rates.disk_write, rates.page_touch})
    if (!usable(rate)) return "a rate is not a positive number";
  if (!std::isfinite(rates.op_overhead) || rates.op_overhead < 0) return "op_overhead is not a time";
  for (const MatmulGrid& grid : rates.matmuls)
    if (std::string fault = fault_of(grid); !fault.empty()) return fault;
  for (const RateCurve& curve : rates.ops)
    if (std::string fault = fault_of(curve); !fault.empty()) return fault;
  return "";
}

}  // namespace plimsoll
