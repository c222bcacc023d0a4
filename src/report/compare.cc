// `plimsoll report RUN RUN ...`: several runs beside each other; and a run as JSON.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "report/report.h"
#include "tasks/task.h"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kWidestComparison = 100;

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

double last_loss(const RunHistory& run) {
  for (auto point = run.steps.rbegin(); point != run.steps.rend(); ++point)
    if (std::isfinite(point->loss)) return point->loss;
  return std::numeric_limits<double>::quiet_NaN();
}

// All runs have to be ranked by one number: a metric where all have it as their goal, else the loss.
std::string shared_goal(const std::vector<RunHistory>& runs) {
  const bool same = std::ranges::all_of(runs, [&](const RunHistory& run) {
    return run.goal == runs.front().goal && best_evaluation(run, run.goal).has_value();
  });
  return same ? runs.front().goal : std::string(kLossGoal);
}

// Smaller is better. Runs without an evaluation come behind those with one.
std::pair<bool, double> rank_of(const RunHistory& run, const std::string& goal) {
  if (const auto best = best_evaluation(run, goal)) return {false, cost_of(goal, best->value(goal))};
  const double loss = last_loss(run);
  return {true, std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity()};
}

std::string sort_runs(std::vector<RunHistory>& runs) {
  const std::string goal = shared_goal(runs);
  std::ranges::stable_sort(
      runs, [&](const RunHistory& a, const RunHistory& b) { return rank_of(a, goal) < rank_of(b, goal); });
  return goal;
}

std::string number_words(double value) { return std::isfinite(value) ? format_number("%.4f", value) : "-"; }

std::string value_of(const RunHistory& run, const std::string& key) {
  for (const auto& [name, value] : run.settings)
    if (name == key) return value;
  return "-";
}

// Keys of the recipes whose values are not the same in all runs; where the run is written is no difference.
std::vector<std::string> differing_keys(const std::vector<RunHistory>& runs) {
  std::vector<std::string> keys;
  for (const RunHistory& run : runs)
    for (const auto& [key, value] : run.settings) {
      const bool known = std::ranges::find(keys, key) != keys.end() || key == "output";
      if (!known && std::ranges::any_of(runs, [&, k = key, v = value](const RunHistory& other) {
            return value_of(other, k) != v;
          }))
        keys.push_back(key);
    }
  return keys;
}

std::string name_of(const RunHistory& run) {
  const std::filesystem::path folder = run.folder.lexically_normal();
  return folder.filename().empty() ? folder.parent_path().filename().string() : folder.filename().string();
}

std::string steps_words(const RunHistory& run) {
  return format_count(run.last_step()) + (run.total_steps > 0 ? "/" + format_count(run.total_steps) : "");
}

std::string differences_text(const std::vector<RunHistory>& runs, size_t columns) {
  const std::vector<std::string> keys = differing_keys(runs);
  if (keys.empty()) return "  their recipes are the same\n";
  TextTable table;
  std::vector<std::string> head = {"what differs"};
  for (const RunHistory& run : runs) head.push_back(name_of(run));
  table.add_row(head);
  for (const std::string& key : keys) {
    std::vector<std::string> row = {key};
    for (const RunHistory& run : runs) row.push_back(value_of(run, key));
    table.add_row(row);
  }
  return table.render("  ", columns);
}

}  // namespace

std::string compare_text(std::vector<RunHistory> runs, size_t columns) {
  columns = std::min(columns, kWidestComparison);
  const std::string goal = sort_runs(runs);
  const bool by_metric = goal != kLossGoal;
  std::vector<std::string> head = {"", "run", "state", "steps", "loss", "eval"};
  if (by_metric) head.push_back(goal);
  head.insert(head.end(), {"at step", "a step", "memory"});
  std::vector<bool> right(head.size(), true);
  right[1] = right[2] = false;
  TextTable table(right);
  table.add_row(head);
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunHistory& run = runs[i];
    const auto best = best_evaluation(run, goal);
    std::vector<std::string> row = {std::to_string(i + 1),
                                    name_of(run),
                                    state_words(run),
                                    steps_words(run),
                                    number_words(last_loss(run)),
                                    best ? number_words(best->loss) : "-"};
    if (by_metric) row.push_back(best ? number_words(best->value(goal)) : "-");
    row.insert(row.end(), {best ? format_count(best->step) : "-",
                           run.steps.empty() ? "-" : format_seconds(median_seconds(run)),
                           largest_rss(run) > 0 ? format_bytes(largest_rss(run)) : "-"});
    table.add_row(row);
  }
  table.may_go({head.size() - 3, 3, 2});
  const std::string by =
      by_metric ? "by " + goal : "by the loss of their best evaluation, else of the last step";
  return fitted(format_count(static_cast<int64_t>(runs.size())) + " runs, the best first, " + by, columns) +
         "\n\n" + table.render("  ", columns) + "\n" + differences_text(runs, columns);
}

Json run_json(const RunHistory& run) {
  const auto best = best_evaluation(run, run.goal);
  const auto evaluation = [](const EvalPoint& point) {
    Json json = {{"step", point.step}, {"loss", finite_or_null(point.loss)}};
    for (const auto& [name, value] : point.metrics) json[name] = finite_or_null(value);
    return json;
  };
  Json evaluations = Json::array(), events = Json::array(), settings = Json::object();
  for (const EvalPoint& point : run.evaluations) evaluations.push_back(evaluation(point));
  for (const RunEvent& event : run.events)
    events.push_back(
        {{"time", event.time}, {"step", event.step}, {"event", event.kind}, {"words", event_words(event)}});
  for (const auto& [key, value] : run.settings) settings[key] = value;
  const auto left = seconds_left(run);
  return {{"folder", run.folder.string()},
          {"state", state_words(run.state)},
          {"end_reason", run.end_reason.empty() ? Json(nullptr) : Json(run.end_reason)},
          {"step", run.last_step()},
          {"total_steps", run.total_steps},
          {"seconds_left", left ? Json(*left) : Json(nullptr)},
          {"loss", finite_or_null(last_loss(run))},
          {"goal", run.goal},
          {"best_evaluation", best ? evaluation(*best) : Json(nullptr)},
          {"tokens_per_second", median_rate(run)},
          {"seconds_per_step", median_seconds(run)},
          {"planned_seconds_per_step", run.planned_seconds_per_step},
          {"peak_process_bytes", largest_rss(run)},
          {"planned_process_bytes", run.planned_process_bytes},
          {"planned_device_bytes", run.planned_device_bytes},
          {"evaluations", evaluations},
          {"events", events},
          {"settings", settings}};
}

Json compare_json(std::vector<RunHistory> runs) {
  const std::string goal = sort_runs(runs);
  Json list = Json::array();
  for (const RunHistory& run : runs) list.push_back(run_json(run));
  return {{"goal", goal}, {"differs", differing_keys(runs)}, {"runs", list}};
}

}  // namespace plimsoll
