// `plimsoll report RUN` in the terminal.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/format.h"
#include "base/printable.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "report/curve.h"
#include "report/report.h"
#include "tasks/task.h"

namespace plimsoll {
namespace {

constexpr size_t kWidestCurve = 60, kWidestText = 100;  // columns

std::string loss_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4f", value);
  return text.data();
}

// "▆▄▃▂▁": the mean loss over the run, from its least to its largest value.
std::string sparkline(const RunHistory& run, size_t columns) {
  std::vector<int64_t> steps;
  std::vector<double> losses;
  for (const StepPoint& point : run.steps) {
    steps.push_back(point.step);
    losses.push_back(point.loss);
  }
  const auto curve = make_curve(steps, losses, columns);
  if (curve.size() < 2) return "";
  const auto [low, high] = std::minmax_element(
      curve.begin(), curve.end(), [](const CurvePoint& a, const CurvePoint& b) { return a.mean < b.mean; });
  const double range = std::max(high->mean - low->mean, 1e-9);
  std::vector<double> shares;
  for (const CurvePoint& point : curve) shares.push_back((point.mean - low->mean) / range);
  return format_blocks(shares);
}

std::string loss_text(const RunHistory& run) {
  const auto finite = [](const StepPoint& point) { return std::isfinite(point.loss); };
  const auto first = std::find_if(run.steps.begin(), run.steps.end(), finite);
  if (first == run.steps.end()) return "none that is finite";
  const auto last = std::find_if(run.steps.rbegin(), run.steps.rend(), finite);
  std::string text = formatted("{} at first, {} at last", loss_number(first->loss), loss_number(last->loss));
  if (const auto best = best_evaluation(run, kLossGoal))
    text += formatted(" · evaluation {}, best {} at step {}", loss_number(run.evaluations.back().loss),
                      loss_number(best->loss), format_count(best->step));
  return text;
}

// "accuracy 0.9100 · f1 0.9052 at last · best accuracy 0.9300 at step 40"; empty where evaluations have the
// loss alone.
std::string metrics_text(const RunHistory& run) {
  if (run.evaluations.empty()) return "";
  std::vector<std::string> parts;
  for (const auto& [name, value] : run.evaluations.back().metrics)
    parts.push_back(formatted("{} {}", printable(name), loss_number(value)));
  if (parts.empty()) return "";
  std::string text = join(parts, " · ") + " at last";
  const auto best = best_evaluation(run, run.goal);
  if (best && run.goal != kLossGoal)
    text += formatted(" · best {} {} at step {}", run.goal, loss_number(best->value(run.goal)),
                      format_count(best->step));
  return text;
}

std::string planned(const std::string& text, bool known) {
  return known ? formatted(" (planned {})", text) : "";
}

// Equal events in a row, as one: a run of many checkpoints has more to show than that it saved.
struct EventGroup {
  RunEvent last;
  int64_t count = 1, first_step = 0;
};

std::vector<EventGroup> grouped_events(const RunHistory& run) {
  std::vector<EventGroup> groups;
  for (const RunEvent& event : run.events) {
    const bool again = !groups.empty() && event.kind == "save" && groups.back().last.kind == "save";
    if (!again) groups.push_back({event, 0, event.step});
    groups.back().last = event;
    ++groups.back().count;
  }
  return groups;
}

std::string group_words(const EventGroup& group) {
  if (group.count == 1) return event_words(group.last);
  return formatted("{}, {} times since step {}", event_words(group.last), format_count(group.count),
                   format_count(group.first_step));
}

std::string events_text(const RunHistory& run, size_t columns) {
  constexpr size_t kShown = 20;
  std::string text;
  const std::vector<EventGroup> groups = grouped_events(run);
  const size_t skipped = groups.size() - std::min(kShown, groups.size());
  if (skipped > 0)
    text += formatted("  events    {} earlier ones\n", format_count(static_cast<int64_t>(skipped)));
  TextTable table({false, false, true, false});
  for (size_t i = skipped; i < groups.size(); ++i)
    table.add_row({i == 0 ? "events" : "", clock_words(groups[i].last.time),
                   "step " + format_count(groups[i].last.step), group_words(groups[i])});
  return text + table.render("  ", columns);
}

// The memory in the run's logs: the plan's figures are in an event, the process's in its steps.
std::string memory_text(const RunHistory& run) {
  std::vector<std::string> parts;
  if (largest_rss(run) > 0)
    parts.push_back(
        formatted("process {}{}", format_bytes(largest_rss(run)),
                  planned(format_bytes(run.planned_process_bytes), run.planned_process_bytes > 0)));
  if (run.planned_device_bytes > 0) parts.push_back("arena " + format_bytes(run.planned_device_bytes));
  return join(parts, " · ");
}

}  // namespace

std::string run_text(const RunHistory& run, size_t columns) {
  columns = std::min(columns, kWidestText);
  std::string text = formatted("{}   {}{}{}{}\n\n", state_words(run), format_count(run.last_step()),
                               run.total_steps > 0 ? " of " + format_count(run.total_steps) : "",
                               std::max(run.total_steps, run.last_step()) == 1 ? " step · " : " steps · ",
                               printable(run.folder.string()));
  text = fitted(text, columns);
  TextTable table;
  if (!run.end_reason.empty()) table.add_row({"because", run.end_reason});
  if (const auto left = seconds_left(run)) table.add_row({"left", "about " + format_seconds(*left)});
  table.add_row({"loss", loss_text(run)});
  const std::string picture = sparkline(run, std::min(kWidestCurve, columns - 14));
  if (!picture.empty()) table.add_row({"", picture});
  if (const std::string metrics = metrics_text(run); !metrics.empty()) table.add_row({"metrics", metrics});
  if (!run.steps.empty())
    table.add_row(
        {"speed",
         formatted("{} tokens/s · {} a step{}", format_count(std::llround(median_rate(run))),
                   format_seconds(median_seconds(run)),
                   planned(format_seconds(run.planned_seconds_per_step), run.planned_seconds_per_step > 0))});
  const std::string memory = memory_text(run);
  if (!memory.empty()) table.add_row({"memory", memory});
  if (const std::string ranks = ranks_words(run); !ranks.empty()) table.add_row({"ranks", ranks});
  if (!run.model.empty()) table.add_row({"model", formatted("{} · {}", run.model, run.method)});
  if (!run.data.empty()) table.add_row({"data", run.data});
  if (!run.batch.empty()) table.add_row({"batch", formatted("{} · {}", run.batch, run.kernels)});
  return text + table.render("  ", columns) + events_text(run, columns);
}

}  // namespace plimsoll
