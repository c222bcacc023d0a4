// plimsoll plan --sweep memory=A..B: from budget to seconds.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "advise/sweep.h"
#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/plan/plan_command.h"
#include "plan/search/run_time.h"

namespace plimsoll {
namespace {

constexpr size_t kBar = 32;

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

std::string text_of(const std::vector<SweptPlan>& points, int64_t smallest) {
  const size_t columns = std::min<size_t>(output_columns(), 100);
  constexpr size_t kBeside = 44;  // columns of the figures before a bar
  const size_t widest = std::clamp(columns - std::min(columns, kBeside), size_t{8}, kBar);
  TextTable table({true, true, true, true});
  std::string words;
  const bool own = !points.empty() && points.front().plan.request.target.own_memory;
  const bool several = !points.empty() && points.front().plan.request.target.budget.sharing > 1;
  table.add_row({"budget", own ? "device" : several ? "processes" : "process", "s/step", "tokens/s"});
  const std::string indent(14, ' ');  // of the longest size, "1000 GiB", with blanks around it
  double most = 0;
  for (const SweptPlan& point : points) most = std::max(most, point.plan.tokens_per_second());
  for (const SweptPlan& point : points) {
    const double speed = point.plan.tokens_per_second();
    table.add_row({format_bytes(point.budget), format_bytes(point.bytes),
                   format_seconds(point.plan.seconds_per_step), speed_cell(speed),
                   bar(speed / most, widest)});
    const std::string budget = format_bytes(point.budget);
    words += formatted(
        "  {}{}  {}\n", std::string(indent.size() - 4 - budget.size(), ' '), budget,
        wrap(variant_words(point.plan.request.workload.experiment, point.plan.variant), indent, columns));
  }
  return formatted("{}\n{}\n  smallest possible: {}\n", table.render("  "), words, format_bytes_up(smallest));
}

std::string json_of(const std::vector<SweptPlan>& points, int64_t smallest) {
  auto list = nlohmann::ordered_json::array();
  for (const SweptPlan& point : points)
    list.push_back({{"budget_bytes", point.budget},
                    {"memory_bytes", point.bytes},
                    {"device_bytes", point.plan.arena_bytes()},
                    {"host_bytes", point.plan.host_bytes()},
                    {"disk_bytes", point.plan.disk_bytes()},
                    {"seconds_per_step", point.plan.seconds_per_step},
                    {"tokens_per_second", point.plan.tokens_per_second()},
                    {"variant", variant_words(point.plan.request.workload.experiment, point.plan.variant)}});
  return json_text(nlohmann::ordered_json{{"points", list}, {"smallest_bytes", smallest}});
}

}  // namespace

ExitCode run_sweep(const PlanArguments& arguments) {
  const SweptMemory swept = read_sweep(arguments.sweep);
  const auto [points, smallest] =
      sweep(plan_input(arguments, {{"memory.device", swept.high}}).request, swept.budgets);
  if (points.empty() && !arguments.json)
    throw DoesNotFitError(formatted("does not fit   nowhere from {} to {}\n  smallest possible: {}",
                                    swept.low, swept.high, format_bytes_up(smallest)));
  print(arguments.json ? json_of(points, smallest) : text_of(points, smallest));
  return points.empty() ? ExitCode::does_not_fit : ExitCode::ok;
}

}  // namespace plimsoll
