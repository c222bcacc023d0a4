#include "report/history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/regular_file.h"
#include "base/units.h"
#include "files/json.h"
#include "files/json_values.h"
#include "files/work_folder.h"
#include "recipe/load/run_facts.h"
#include "tasks/task.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Line = nlohmann::json;

// Calls `use` with every line; a missing file has none.
void read_lines(const fs::path& file, const std::function<void(const Line&)>& use) {
  if (!fs::exists(file)) return;
  require_regular(file);
  std::ifstream in(file, std::ios::binary);
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (in.eof()) return;  // without its newline: being written, or cut off
    const std::string where = formatted("{}:{}", file.string(), number);
    read_values(where, [&] { use(parse_json(line, where)); });
  }
  if (!in.is_open() || in.bad()) throw StoppedError(file.string() + ": cannot be read.");
}

double real(const Line& line, const char* key) {
  const auto at = line.find(key);
  return at == line.end() || at->is_null() ? std::numeric_limits<double>::quiet_NaN() : at->get<double>();
}

// A whole number, clamped to what a double holds exactly: sums and differences of two stay in 64 bits. A
// fraction is damage.
int64_t whole(const Line& value) {
  constexpr double kMost = 0x1p53;
  const auto number = value.get<double>();
  if (number != std::trunc(number)) return get_whole<int64_t>(value);  // throws
  return static_cast<int64_t>(std::clamp(number, -kMost, kMost));
}
int64_t whole(const Line& line, const char* key) {
  const auto at = line.find(key);
  return at == line.end() ? 0 : whole(*at);
}

StepPoint step_of(const Line& line) {
  StepPoint point{whole(line.at("step")),           real(line, "loss"),
                  line.at("lr").get<double>(),      whole(line.at("tokens")),
                  line.at("seconds").get<double>(), whole(line, "rss")};
  point.waited = line.value("sending_seconds", 0.0);
  point.slowest = line.contains("slowest_rank") ? whole(line, "slowest_rank") : -1;
  point.slower = line.value("slower", 0.0);
  return point;
}

void read_start(const Line& line, RunHistory& run) {
  run.total_steps = whole(line, "total_steps");
  run.planned_process_bytes = whole(line, "planned_process_bytes");
  run.planned_device_bytes = whole(line, "planned_device_bytes");
  run.ranks.count = std::max<int64_t>(1, whole(line, "ranks"));
  run.planned_seconds_per_step = line.value("planned_seconds_per_step", 0.0);
  run.kernels = line.value("kernels", "");
  if (line.contains("effective_batch") && line.contains("micro_batch")) {
    const int64_t effective = whole(line["effective_batch"]);
    const int64_t micro = whole(line["micro_batch"]);
    const int64_t tokens = line.contains("micro_tokens") ? whole(line["micro_tokens"]) : 0;
    run.batch = tokens > 0 ? formatted("{} in micro-steps of {} tokens", format_count(effective),
                                       format_count(tokens))
                           : formatted("{} = {} x {}", format_count(effective), format_count(micro),
                                       format_count(ceil_div(effective, std::max<int64_t>(1, micro))));
  }
}

EvalPoint evaluation_of(const Line& line) {
  EvalPoint point{whole(line.at("step")), real(line, "loss")};
  for (const auto& [name, value] : line.items())
    if (value.is_number() && name != "step" && name != "loss" && name != "target_tokens" && name != "seconds")
      point.metrics.emplace_back(name, value.get<double>());
  return point;
}

// A recipe that this version does not take any more leaves the names out; the logs are what a report is of.
void read_recipe(const fs::path& file, RunHistory& run) {
  auto facts = recipe_facts(file);
  if (!facts) return;
  run.model = std::move(facts->model);
  run.data = std::move(facts->data);
  run.method = std::move(facts->method);
  run.settings = std::move(facts->settings);
  run.goal = facts->goal.value_or(run.goal);
}

RunEvent event_of(const Line& line) {
  RunEvent event{line.at("time").get<double>(), whole(line.at("step")), line.at("event").get<std::string>(),
                 ""};
  if (event.kind == "signal") event.detail = line.value("signal", "");
  if (event.kind == "stop" || event.kind == "end") event.detail = line.value("reason", "");
  return event;
}

RunState state_of(const RunHistory& run) {
  const std::string last = run.events.empty() ? "" : run.events.back().kind;
  if (last == "end") return RunState::finished;
  if (last == "stop") return RunState::stopped;
  if (is_locked(run.folder)) return RunState::running;
  const auto has_stopped = [](const RunEvent& event) {
    return event.kind == "signal" && event.detail != "SIGUSR1";
  };
  // The signal's line comes before that of the save it leads to.
  const auto tail = std::span(run.events).last(std::min<size_t>(2, run.events.size()));
  return std::any_of(tail.begin(), tail.end(), has_stopped) ? RunState::interrupted : RunState::killed;
}

template <class Value>
double median(const RunHistory& run, Value value) {
  std::vector<double> values;
  for (const StepPoint& point : run.steps) values.push_back(value(point));
  if (values.size() > 2) values.erase(values.begin(), values.begin() + 2);
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

double EvalPoint::value(std::string_view goal) const {
  if (goal == kLossGoal) return loss;
  for (const auto& [name, value] : metrics)
    if (name == goal) return value;
  return std::numeric_limits<double>::quiet_NaN();
}

RunHistory read_history(const fs::path& folder) {
  if (!fs::exists(folder)) throw UsageError(folder.string() + ": no such folder");
  if (!fs::exists(folder / "metrics.jsonl"))
    throw UsageError(folder.string() + ": holds no run: metrics.jsonl is missing");
  RunHistory run;
  run.folder = folder;
  read_lines(folder / "metrics.jsonl", [&](const Line& line) { run.steps.push_back(step_of(line)); });
  read_lines(folder / "eval.jsonl",
             [&](const Line& line) { run.evaluations.push_back(evaluation_of(line)); });
  read_lines(folder / "events.jsonl", [&](const Line& line) {
    run.events.push_back(event_of(line));
    if (run.events.back().kind == "start" || run.events.back().kind == "resume") read_start(line, run);
  });
  if (fs::exists(folder / "run.json"))
    read_values((folder / "run.json").string(), [&] {
      const Line record = read_json(folder / "run.json", kMiB);
      for (const Line& rank : record.value("ranks", Line::array()))
        run.ranks.bytes.push_back(whole(rank, "process_peak_rss_bytes"));
      const Line measured = record.value("measured", Line::object());
      run.measured_device_bytes = whole(measured, "device_arena_bytes");
      run.measured_process_bytes = whole(measured, "process_peak_rss_bytes");
    });
  if (fs::exists(folder / "recipe.yaml")) read_recipe(folder / "recipe.yaml", run);
  run.state = state_of(run);
  // Logs of versions before the reason was written: nothing else ends a run whole before its last step.
  if (run.state == RunState::finished && run.total_steps > run.last_step() && !run.steps.empty())
    run.end_reason = run.events.back().detail.empty() ? "stop.patience" : run.events.back().detail;
  return run;
}

const char* state_words(RunState state) {
  switch (state) {
    case RunState::finished:
      return "finished";
    case RunState::interrupted:
      return "interrupted, saved";
    case RunState::stopped:
      return "stopped";
    case RunState::running:
      return "running";
    case RunState::killed:
      return "ended without a word";
  }
  throw InternalError("state_words: no such state");
}

std::string state_words(const RunHistory& run) {
  return run.end_reason.empty() ? state_words(run.state) : "ended early";
}

std::optional<double> seconds_left(const RunHistory& run) {
  if (run.state != RunState::running || run.steps.empty() || run.total_steps <= run.last_step())
    return std::nullopt;
  return median_seconds(run) * static_cast<double>(run.total_steps - run.last_step());
}

double median_rate(const RunHistory& run) {
  return median(run, [](const StepPoint& point) { return point.tokens_per_second(); });
}
double median_seconds(const RunHistory& run) {
  return median(run, [](const StepPoint& point) { return point.seconds; });
}

int64_t largest_rss(const RunHistory& run) {
  int64_t largest = run.measured_process_bytes;
  for (const StepPoint& point : run.steps) largest = std::max(largest, point.rss);
  return largest;
}

RanksOfRun ranks_of(const RunHistory& run) {
  RanksOfRun all;
  for (size_t rank = 0; rank < run.ranks.bytes.size(); ++rank) {
    all.together += run.ranks.bytes[rank];
    if (run.ranks.bytes[rank] <= all.largest) continue;
    all.largest = run.ranks.bytes[rank];
    all.largest_rank = static_cast<int64_t>(rank);
  }
  double seconds = 0;
  struct Slowest {
    int64_t steps = 0;
    double slower = 0;
  };
  std::map<int64_t, Slowest> slowest;
  for (const StepPoint& point : run.steps) {
    seconds += point.seconds;
    all.waiting += point.waited;
    if (point.slowest < 0) continue;
    ++slowest[point.slowest].steps;
    slowest[point.slowest].slower += point.slower;
  }
  all.waiting = seconds > 0 ? std::clamp(all.waiting / seconds, 0.0, 1.0) : 0;
  const auto most = std::ranges::max_element(
      slowest, {}, [](const std::pair<const int64_t, Slowest>& one) { return one.second.steps; });
  if (most == slowest.end()) return all;
  all.slowest = most->first;
  all.slower = most->second.slower / static_cast<double>(most->second.steps);
  return all;
}

std::string ranks_words(const RunHistory& run) {
  constexpr double kWorthSaying = 0.1;  // as of the lines of train
  if (run.ranks.count <= 1) return "";
  const RanksOfRun all = ranks_of(run);
  std::string text = format_count(run.ranks.count);
  if (all.largest > 0)
    text += formatted(" · {} at most (rank {}), {} together", format_bytes(all.largest), all.largest_rank,
                      format_bytes(all.together));
  if (!run.steps.empty()) text += formatted(" · waiting {} %", std::lround(100 * all.waiting));
  if (all.slowest >= 0 && all.slower >= kWorthSaying)
    text += formatted(" · slowest rank {} (+{} %)", all.slowest, std::lround(100 * all.slower));
  return text;
}

std::optional<EvalPoint> best_evaluation(const RunHistory& run, std::string_view goal) {
  std::optional<EvalPoint> best;
  const auto cost = [&](const EvalPoint& point) { return cost_of(goal, point.value(goal)); };
  for (const EvalPoint& point : run.evaluations)
    if (std::isfinite(cost(point)) && (!best || cost(point) < cost(*best))) best = point;
  return best;
}

std::string clock_words(double time) {
  constexpr double kYear9999 = 253402300799.0;
  const auto seconds = static_cast<std::time_t>(std::isfinite(time) ? std::clamp(time, 0.0, kYear9999) : 0.0);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

std::string event_words(const RunEvent& event) {
  if (event.kind == "signal") return event.detail;
  if (event.kind == "stop") return "stopped: " + event.detail.substr(0, event.detail.find('\n'));
  if (event.kind == "save") return "saved";
  if (event.kind == "start") return "started";
  if (event.kind == "resume") return "resumed";
  if (event.kind == "end") return event.detail.empty() ? "finished" : "ended early: " + event.detail;
  return event.kind;
}

}  // namespace plimsoll
