// plimsoll plan --sweep memory=A..B: from budget to seconds.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/print.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/advise/plan_command.h"
#include "plan/search/fitting_plans.h"
#include "plan/search/run_time.h"

namespace plimsoll {
namespace {

constexpr int kBudgets = 16;
constexpr size_t kBar = 32;

// The fastest plan of a budget; of several budgets with the same plan the smallest.
struct Point {
  int64_t budget = 0;
  Plan plan;
};

// Every point is laid out, so that its bytes are exact.
std::vector<Point> curve(const PlanRequest& request, const std::vector<int64_t>& budgets) {
  FittingPlans plans(request);
  std::vector<Point> points;
  for (const int64_t budget : budgets) {
    PlanRequest limited = request;
    limit_memory(limited, budget);
    auto plan = plans.within(limited.target.budget);
    if (!plan) continue;
    if (points.empty() || points.back().plan.variant != plan->variant)
      points.push_back({budget, *std::move(plan)});
  }
  return points;
}

std::string bar(double share, size_t width) {
  std::string text;
  for (int i = 0; i < static_cast<int>(share * static_cast<double>(width) + 0.5); ++i) text += "█";
  return text;
}

// The cell under the heading "tokens/s"; for the slowest, seconds a token.
std::string speed_cell(double tokens_per_second) {
  std::string words = speed_words(tokens_per_second);
  if (const size_t unit = words.find(" tokens/s"); unit != std::string::npos) words.resize(unit);
  return words;
}

std::string text_of(const std::vector<Point>& points, int64_t smallest) {
  const size_t columns = std::min<size_t>(output_columns(), 100);
  constexpr size_t kBeside = 44;  // columns of the figures before a bar
  const size_t widest = std::clamp(columns - std::min(columns, kBeside), size_t{8}, kBar);
  TextTable table({true, true, true, true});
  std::string words;
  const bool own = !points.empty() && points.front().plan.request.target.own_memory;
  table.add_row({"budget", own ? "device" : "process", "s/step", "tokens/s"});
  const std::string indent(14, ' ');  // of the longest size, "1000 GiB", with blanks around it
  double most = 0;
  for (const Point& point : points) most = std::max(most, point.plan.tokens_per_second());
  for (const Point& point : points) {
    const double speed = point.plan.tokens_per_second();
    table.add_row({format_bytes(point.budget), format_bytes(point.plan.memory_bytes()),
                   format_seconds(point.plan.seconds_per_step), speed_cell(speed),
                   bar(speed / most, widest)});
    const std::string budget = format_bytes(point.budget);
    words +=
        "  " + std::string(indent.size() - 4 - budget.size(), ' ') + budget + "  " +
        wrap(variant_words(point.plan.request.workload.experiment, point.plan.variant), indent, columns) +
        "\n";
  }
  return table.render("  ") + "\n" + words + "\n  smallest possible: " + format_bytes_up(smallest) + "\n";
}

std::string json_of(const std::vector<Point>& points, int64_t smallest) {
  auto list = nlohmann::ordered_json::array();
  for (const Point& point : points)
    list.push_back({{"budget_bytes", point.budget},
                    {"memory_bytes", point.plan.memory_bytes()},
                    {"device_bytes", point.plan.arena_bytes()},
                    {"host_bytes", point.plan.host_bytes()},
                    {"disk_bytes", point.plan.disk_bytes()},
                    {"seconds_per_step", point.plan.seconds_per_step},
                    {"tokens_per_second", point.plan.tokens_per_second()},
                    {"variant", variant_words(point.plan.request.workload.experiment, point.plan.variant)}});
  return json_text(nlohmann::ordered_json{{"points", list}, {"smallest_bytes", smallest}});
}

}  // namespace

SweptMemory read_sweep(const std::string& text) {
  const size_t equals = text.find('=');
  const size_t dots = text.find("..");
  if (text.substr(0, equals) != "memory" || dots == std::string::npos || equals == std::string::npos)
    throw UsageError("--sweep: '" + text + "' is not memory=SIZE..SIZE, such as memory=2GiB..24GiB");
  SweptMemory swept{text.substr(equals + 1, dots - equals - 1), text.substr(dots + 2), {}};
  const int64_t from = parse_bytes(swept.low, "--sweep"), to = parse_bytes(swept.high, "--sweep");
  if (from <= 0 || from >= to)
    throw UsageError("--sweep: '" + text + "' does not go from a smaller size to a larger one");
  const double ratio = static_cast<double>(to) / static_cast<double>(from);
  for (int i = 0; i + 1 < kBudgets; ++i)
    swept.budgets.push_back(
        static_cast<int64_t>(static_cast<double>(from) * std::pow(ratio, i / (kBudgets - 1.0))));
  swept.budgets.push_back(to);
  return swept;
}

ExitCode run_sweep(const PlanArguments& arguments) {
  const SweptMemory swept = read_sweep(arguments.sweep);
  const PlanRequest request = plan_input(arguments, {"memory.device=" + swept.high}).request;
  const std::vector<Point> points = curve(request, swept.budgets);
  const int64_t smallest = memory_bytes(request, make_plan(request).smallest);
  if (points.empty() && !arguments.json)
    throw DoesNotFitError("does not fit   nowhere from " + swept.low + " to " + swept.high +
                          "\n  smallest possible: " + format_bytes_up(smallest));
  print(arguments.json ? json_of(points, smallest) : text_of(points, smallest));
  return points.empty() ? ExitCode::does_not_fit : ExitCode::ok;
}

}  // namespace plimsoll
