#include "layout/outward.h"

#include <array>
#include <cmath>
#include <tuple>

namespace plimsoll::layout {
namespace {

// How buffers are ordered: by their distance from the points where at least `share` of the bound is alive.
struct Outward {
  double share = 1;
  bool by_last = false;      // the stack: by last op, the latest lowest; otherwise by first op
  bool large_first = false;  // of about the same distance
  bool from_above = false;   // what ends before the peak is placed as high as it goes
};
constexpr std::array kOutward = {Outward{0.999, false, false, false}, Outward{0.999, false, true, false},
                                 Outward{0.999, true, false, false},  Outward{0.999, true, true, false},
                                 Outward{0.999, false, false, true},  Outward{0.97, false, false, false},
                                 Outward{0.97, false, true, false},   Outward{0.97, true, true, false},
                                 Outward{0.9, false, false, false},   Outward{0.9, false, true, false},
                                 Outward{0.9, true, true, false},     Outward{0.97, true, false, true}};

// Points from a span to the nearest of `hot`: 0 inside, below 0 where the span ends before it.
int64_t distance(Span span, std::span<const uint32_t> hot) {
  const auto next = std::ranges::lower_bound(hot, span.begin);
  if (next != hot.end() && *next < span.end) return 0;
  constexpr int64_t kFar = int64_t{1} << 40;
  const int64_t before = next != hot.end() ? int64_t{*next} - span.end + 1 : kFar;
  const int64_t behind = next != hot.begin() ? int64_t{span.begin} - *std::prev(next) : kFar;
  return before < behind ? -before : behind;
}

Order order_of(const Instance& instance, const Outward& how) {
  std::vector<uint32_t> hot;
  for (uint32_t point = 0; point < instance.num_points; ++point)
    if (static_cast<double>(instance.live[point]) >= how.share * static_cast<double>(instance.lower_bound))
      hot.push_back(point);
  Order order;
  for (const Span& span : instance.spans)
    order.from_above.push_back(how.from_above && distance(span, hot) < 0 ? 1 : 0);
  order.buffers = by_keys(instance, [&](int32_t buffer) -> std::tuple<int64_t, int64_t, int64_t> {
    const Span span = instance.spans[static_cast<size_t>(buffer)];
    const int64_t away = distance(span, hot);
    const int64_t begin = -int64_t{span.begin};
    if (away == 0) return {0, 0, how.by_last ? int64_t{span.end} : begin};
    const int64_t in_time = away < 0 ? int64_t{span.end} : begin;
    if (!how.large_first) return {-std::abs(away), 0, in_time};
    const auto doublings = static_cast<int64_t>(std::log2(std::abs(away)));
    return {-1 - doublings, instance.bytes[static_cast<size_t>(buffer)], in_time};
  });
  return order;
}

}  // namespace

void improve_outward(const Instance& instance, const Neighbours& neighbours, double most_work,
                     Placement& best) {
  if (best.top <= good_enough(instance)) return;
  std::vector<Order> orders;
  for (const Outward& how : kOutward) orders.push_back(order_of(instance, how));
  improve_by_climbing(instance, neighbours, orders, most_work, 1, "outward from the peak", best);
}

}  // namespace plimsoll::layout
