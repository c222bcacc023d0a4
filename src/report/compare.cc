// `plimsoll report RUN RUN ...`: compares several runs; and a run as JSON.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/page.h"
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

// The evaluation that stands for a run: the best by what all are ranked by, or where that is the loss as
// their goals differ, by its own.
std::optional<EvalPoint> evaluation_of(const RunHistory& run, const std::string& goal) {
  return best_evaluation(run, goal == kLossGoal ? run.goal : goal);
}

// Smaller is better. Runs without an evaluation come behind those with one.
std::pair<bool, double> rank_of(const RunHistory& run, const std::string& goal) {
  const auto best = evaluation_of(run, goal);
  if (best && std::isfinite(best->value(goal))) return {false, cost_of(goal, best->value(goal))};
  const double loss = goal == kLossGoal ? last_loss(run) : std::numeric_limits<double>::quiet_NaN();
  return {true, std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity()};
}

// Metrics that the evaluations of any run tell, in the order of the first that has them.
std::vector<std::string> metrics_of(const std::vector<RunHistory>& runs) {
  std::vector<std::string> names;
  for (const RunHistory& run : runs)
    for (const EvalPoint& point : run.evaluations)
      for (const auto& [name, value] : point.metrics)
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names;
}

// Sorts them by `by`, or by what they have in common. Returns what that is.
std::string sort_runs(std::vector<RunHistory>& runs, const std::string& by) {
  if (!by.empty() && by != kLossGoal) {
    const std::vector<std::string> metrics = metrics_of(runs);
    if (std::ranges::find(metrics, by) == metrics.end())
      throw UsageError(formatted("--by {}: no evaluation of these runs has it; they have loss{}", by,
                                 metrics.empty() ? "" : ", " + join(metrics, ", ")));
  }
  const std::string goal = by.empty() ? shared_goal(runs) : by;
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

using Rows = std::vector<std::vector<std::string>>;

// The first row is the head. With the metrics of each run's evaluation, that which they are sorted by first.
Rows table_of(const std::vector<RunHistory>& runs, const std::string& goal) {
  std::vector<std::string> metrics = metrics_of(runs);
  std::stable_partition(metrics.begin(), metrics.end(),
                        [&](const std::string& name) { return name == goal; });
  Rows rows = {{"", "run", "state", "steps", "loss", "eval"}};
  rows.front().insert(rows.front().end(), metrics.begin(), metrics.end());
  rows.front().insert(rows.front().end(), {"at step", "a step", "memory"});
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunHistory& run = runs[i];
    const auto best = evaluation_of(run, goal);
    std::vector<std::string> row = {std::to_string(i + 1),
                                    name_of(run),
                                    state_words(run),
                                    steps_words(run),
                                    number_words(last_loss(run)),
                                    best ? number_words(best->loss) : "-"};
    for (const std::string& name : metrics) row.push_back(best ? number_words(best->value(name)) : "-");
    row.insert(row.end(), {best ? format_count(best->step) : "-",
                           run.steps.empty() ? "-" : format_seconds(median_seconds(run)),
                           largest_rss(run) > 0 ? format_bytes(largest_rss(run)) : "-"});
    rows.push_back(std::move(row));
  }
  return rows;
}

Rows differences_of(const std::vector<RunHistory>& runs) {
  const std::vector<std::string> keys = differing_keys(runs);
  if (keys.empty()) return {};
  Rows rows = {{"what differs"}};
  for (const RunHistory& run : runs) rows.front().push_back(name_of(run));
  for (const std::string& key : keys) {
    std::vector<std::string>& row = rows.emplace_back(std::vector<std::string>{key});
    for (const RunHistory& run : runs) row.push_back(value_of(run, key));
  }
  return rows;
}

std::string headline(const std::vector<RunHistory>& runs, const std::string& goal) {
  return formatted(
      "{} runs, the best first, {}", format_count(static_cast<int64_t>(runs.size())),
      goal == kLossGoal ? "by the loss of their best evaluation, else of the last step" : "by " + goal);
}

std::string html_of(const Rows& rows, size_t words) {
  std::string html = "<table>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string kind = i == 0 ? "th" : "td";
    html += "<tr>";
    for (size_t j = 0; j < rows[i].size(); ++j)
      html +=
          formatted("<{}{}{}</{}>", kind, j < words ? ">" : " class=\"n\">", page::escaped(rows[i][j]), kind);
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

}  // namespace

std::string compare_text(std::vector<RunHistory> runs, size_t columns, const std::string& by) {
  columns = std::min(columns, kWidestComparison);
  const std::string goal = sort_runs(runs, by);
  const Rows rows = table_of(runs, goal);
  const size_t width = rows.front().size();
  std::vector<bool> right(width, true);
  right[1] = right[2] = false;
  TextTable table(right);
  for (const std::vector<std::string>& row : rows) table.add_row(row);
  // First the columns that show least how well a run did; last the metrics that the table is not sorted by.
  std::vector<size_t> may_go = {width - 3, 3, 2};
  for (size_t i = width - 4; i > 6; --i) may_go.push_back(i);
  table.may_go(may_go);
  const Rows differences = differences_of(runs);
  TextTable what_differs;
  for (const std::vector<std::string>& row : differences) what_differs.add_row(row);
  return formatted(
      "{}\n\n{}\n{}", fitted(headline(runs, goal), columns), table.render("  ", columns),
      differences.empty() ? "  their recipes are the same\n" : what_differs.render("  ", columns));
}

std::string compare_page(std::vector<RunHistory> runs, const std::string& by) {
  const std::string goal = sort_runs(runs, by);
  std::string html = formatted("{}<p>{}.</p>\n{}", page::head("Runs", ""),
                               page::escaped(headline(runs, goal)), html_of(table_of(runs, goal), 3));
  const Rows differences = differences_of(runs);
  html += differences.empty() ? "<p>Their recipes are the same.</p>\n"
                              : "<h2>What differs</h2>\n" + html_of(differences, 99);
  return html + page::end("{}", "");
}

// Null where it has one process.
Json ranks_json(const RunHistory& run) {
  if (run.ranks.count <= 1) return nullptr;
  const RanksOfRun all = ranks_of(run);
  const auto known = [](int64_t value, int64_t least) {
    return value >= least ? Json(value) : Json(nullptr);
  };
  return {{"count", run.ranks.count},
          {"peak_process_bytes", known(all.largest, 1)},
          {"largest_rank", known(all.largest_rank, 0)},
          {"peak_bytes_together", known(all.together, 1)},
          {"waiting_share", all.waiting},
          {"slowest_rank", known(all.slowest, 0)},
          {"slower", all.slower}};
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
          {"ranks", ranks_json(run)},
          {"evaluations", evaluations},
          {"events", events},
          {"settings", settings}};
}

Json compare_json(std::vector<RunHistory> runs, const std::string& by) {
  const std::string goal = sort_runs(runs, by);
  Json list = Json::array();
  for (const RunHistory& run : runs) list.push_back(run_json(run));
  return {{"goal", goal}, {"metrics", metrics_of(runs)}, {"differs", differing_keys(runs)}, {"runs", list}};
}

}  // namespace plimsoll
