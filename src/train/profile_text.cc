// The table of a profile: ops by time, with what they would take at their own bound.
#include <algorithm>
#include <cctype>
#include <map>

#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "graph/op_kind.h"
#include "ops/rule.h"
#include "plan/program/time_model.h"
#include "train/profile.h"

namespace plimsoll {
namespace {

constexpr size_t kPlaces = 12;  // lines of the second table

// Sums over all steps.
struct Sum {
  int64_t calls = 0;
  double seconds = 0, bound = 0, flops = 0, bytes = 0;
  bool arithmetic = false;  // what bounds most of it: FLOPs, not bytes

  void add(double taken, const Bound& op) {
    ++calls;
    seconds += taken;
    bound += op.seconds;
    flops += op.flops;
    bytes += op.bytes;
    arithmetic = arithmetic || op.arithmetic;
  }
  [[nodiscard]] double above_bound() const { return seconds - bound; }
};
using Sums = std::map<std::string, Sum>;

double seconds(const TimeSpan& span) { return static_cast<double>(span.end - span.begin) * 1e-9; }

double total(std::span<const TimeSpan> spans) {
  double sum = 0;
  for (const TimeSpan& span : spans) sum += seconds(span);
  return sum;
}

// "layers.3.mlp.up_proj" and its brothers: one place.
std::string place_of(const Op& op) {
  std::string place = std::string(to_string(op.kind)) + " ";
  for (const char c : op.scope.text()) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (digit && place.ends_with('.')) {
      place += '*';
    } else if (!digit || !place.ends_with('*')) {
      place += c;
    }
  }
  return place;
}

struct Times {
  Sums kinds, places;
  double steps = 0, ops = 0, bound = 0;  // seconds
  double data = 0, transfers = 0;
};

Times add_up(const std::vector<Graph>& programs, const Recorder& recorder, const DeviceRates& rates) {
  Times times;
  times.steps = total(recorder.spans(Track::steps));
  for (const TimeSpan& span : recorder.spans(Track::compute)) {
    if (span.op == static_cast<int32_t>(Beside::data)) {
      times.data += seconds(span);
      continue;
    }
    const Op* op = span.op < 0
                       ? nullptr
                       : &programs[static_cast<size_t>(span.program)].ops()[static_cast<size_t>(span.op)];
    if (op == nullptr || is_transfer(op->kind)) {
      times.transfers += seconds(span);
      continue;
    }
    const Bound bound = bound_of(programs[static_cast<size_t>(span.program)], *op, rates);
    times.kinds[std::string(to_string(op->kind))].add(seconds(span), bound);
    times.places[place_of(*op)].add(seconds(span), bound);
    times.ops += seconds(span);
    times.bound += bound.seconds;
  }
  return times;
}

// "1,234.5": milliseconds.
std::string milliseconds(double seconds) {
  const auto tenths = static_cast<int64_t>(seconds * 1e4 + 0.5);
  return formatted("{}.{}", format_count(tenths / 10), tenths % 10);
}

std::string percent(double part, double whole) {
  return whole > 0 ? format_number("%.1f %%", 100 * part / whole) : "";
}

std::string rate_of(const Sum& sum) {
  if (sum.seconds <= 0) return "";
  if (sum.arithmetic) return format_number("%.0f GFLOP/s", sum.flops / sum.seconds / 1e9);
  return format_number("%.1f GB/s", sum.bytes / sum.seconds / 1e9);
}

std::vector<Sums::const_iterator> sorted(const Sums& sums, double (*key)(const Sum&)) {
  std::vector<Sums::const_iterator> order;
  for (auto i = sums.begin(); i != sums.end(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [key](const auto& a, const auto& b) { return key(a->second) > key(b->second); });
  return order;
}

std::string calls_of(const Sum& sum, double steps) {
  return format_number("%.0f", static_cast<double>(sum.calls) / steps);
}

std::string by_kind(const Times& times, double steps) {
  TextTable table({false, true, true, true, true, true});
  table.add_row({"op", "calls", "ms a step", "share", "of bound", "rate"});
  const auto row = [&](const std::string& name, double taken) {
    table.add_row({name, "", milliseconds(taken / steps), percent(taken, times.steps)});
  };
  for (const auto& i : sorted(times.kinds, [](const Sum& s) { return s.seconds; })) {
    const Sum& sum = i->second;
    table.add_row({i->first, calls_of(sum, steps), milliseconds(sum.seconds / steps),
                   percent(sum.seconds, times.steps), percent(sum.bound, sum.seconds), rate_of(sum)});
  }
  row("waiting for transfers", times.transfers);
  row("waiting for data", times.data);
  row("between ops", times.steps - times.ops - times.transfers - times.data);
  table.add_row({"step", "", milliseconds(times.steps / steps), percent(times.steps, times.steps),
                 percent(times.bound, times.steps)});
  return table.render("  ");
}

std::string by_place(const Times& times, double steps) {
  TextTable table({false, true, true, true, true, true});
  table.add_row({"most above its bound", "calls", "ms a step", "above", "of bound", "rate"});
  auto order = sorted(times.places, [](const Sum& s) { return s.above_bound(); });
  if (order.size() > kPlaces) order.resize(kPlaces);
  for (const auto& i : order) {
    const Sum& sum = i->second;
    table.add_row({i->first, calls_of(sum, steps), milliseconds(sum.seconds / steps),
                   milliseconds(std::max(0.0, sum.above_bound()) / steps), percent(sum.bound, sum.seconds),
                   rate_of(sum)});
  }
  return table.render("  ");
}

}  // namespace

std::string profile_text(const std::vector<Graph>& programs, const Recorder& recorder,
                         const DeviceRates& rates) {
  const auto steps = static_cast<double>(recorder.spans(Track::steps).size());
  if (steps == 0) return "profile no step was recorded\n";
  const Times times = add_up(programs, recorder, rates);
  return formatted("profile {}{} · bounds: {} GFLOP/s bf16, {} GFLOP/s f32, {} GB/s{}\n{}\n{}",
                   format_number("%.0f", steps), steps == 1 ? " step" : " steps",
                   format_number("%.0f", rates.matmul_bf16 / 1e9),
                   format_number("%.0f", rates.matmul_f32 / 1e9),
                   format_number("%.1f", rates.bandwidth / 1e9), rates.calibrated ? "" : " (uncalibrated)",
                   by_kind(times, steps), by_place(times, steps));
}

}  // namespace plimsoll
