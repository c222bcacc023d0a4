#include "plan/run_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <unordered_map>

#include "base/units.h"
#include "ops/linear_products.h"
#include "ops/rule.h"
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
  const RateCurve* curve = find_curve(rates, to_string(op.kind), work.dtype, work.head_dim);
  const double usual = work.dtype == DType::bf16 ? rates.matmul_bf16 : rates.matmul_f32;
  return std::max(rates.op_overhead, work.work / (curve == nullptr ? usual : rate_at(*curve, work.at)));
}

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
      return std::max(rates.op_overhead, full * filling.targets);
    case OpKind::rms_norm_grad:
      return std::max(rates.op_overhead, full * filling.tokens);
    case OpKind::attention:
    case OpKind::attention_grad:
      return attention_seconds(graph, op, rates, filling);
    default:
      return full;
  }
}

std::string printed(const char* format, double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

// "2 days 4 h"; the second one only where it is not 0.
std::string two_units(double seconds, double large, const char* first, double small, const char* second) {
  const auto count = static_cast<int64_t>(std::llround(seconds / small));
  const auto ratio = static_cast<int64_t>(large / small);
  const int64_t whole = count / ratio;
  return format_count(whole) + first +
         (count % ratio == 0 ? "" : " " + std::to_string(count % ratio) + second);
}

constexpr double kMinute = 60;
constexpr double kHour = 3600;
constexpr double kDay = 86400;
constexpr double kYear = 365 * kDay;

}  // namespace

Filling filling_of(const Experiment& experiment, const RunSteps& run) {
  if (run.tokens <= 0) return {};
  const auto capacity = static_cast<double>(experiment.effective_batch * experiment.max_length);
  return {std::min(1.0, run.tokens / capacity), std::min(1.0, run.targets / capacity), run.row_length};
}

// The two queues of TimeModel::program_seconds, whose seconds of an op are those of full rows.
double filled_seconds(const Graph& graph, const DeviceRates& rates, const Filling& filling) {
  double compute = 0;
  double io = 0;
  std::unordered_map<TensorId, double> complete;
  for (const Op& op : graph.ops()) {
    if (is_queued(op)) {
      io = std::max(io, compute) + op_seconds(graph, op, rates);
      compute += contention_seconds(graph, op, rates);
      complete[op.kind == OpKind::fetch ? op.outputs[0] : op.inputs[0]] = io;
    } else if (is_transfer(op.kind)) {
      if (const auto copy = complete.find(op.inputs[0]); copy != complete.end())
        compute = std::max(compute, copy->second);
    } else {
      compute += filled_op_seconds(graph, op, rates, filling);
    }
  }
  return std::max(compute, io);
}

std::string duration_words(double seconds) {
  if (!(seconds < 1000 * kYear)) return "more than 1,000 years";
  if (seconds < 120) return format_seconds(seconds);
  if (seconds < 10 * kMinute) return two_units(seconds, kMinute, " min", 1, " s");
  if (seconds < 119.5 * kMinute) return format_count(std::llround(seconds / kMinute)) + " min";
  if (seconds < 47.9 * kHour) return two_units(seconds, kHour, " h", kMinute, " min");
  if (seconds < 14 * kDay) return two_units(seconds, kDay, " days", kHour, " h");
  if (seconds < 2 * kYear) return format_count(std::llround(seconds / kDay)) + " days";
  return printed("%.1f", seconds / kYear) + " years";
}

std::string speed_words(double tokens_per_second) {
  if (tokens_per_second >= 9.95) return format_count(std::llround(tokens_per_second)) + " tokens/s";
  if (tokens_per_second >= 1.95) return printed("%.1f", tokens_per_second) + " tokens/s";
  return duration_words(1.0 / tokens_per_second) + " a token";
}

std::string run_words(const Plan& plan) {
  constexpr int64_t kThousand = 1000;
  const auto& run = plan.request.run;
  if (!run)
    return "1,000 steps take about " + duration_words(kThousand * plan.seconds_per_step) +
           " (the recipe names neither rows nor steps)";
  std::string text = (run->estimated ? "about " : "") + format_count(run->steps) +
                     (run->steps == 1 ? " step" : " steps") + " in about " +
                     duration_words(plan.run_seconds());
  if (run->epochs > 0 && plan.request.data)
    text += " (" + format_count(run->epochs) + (run->epochs == 1 ? " epoch of " : " epochs of ") +
            format_count(plan.request.data->rows) + " rows)";
  return text;
}

}  // namespace plimsoll
