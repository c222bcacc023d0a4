#include "runs/run_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEventStem = "events.out.tfevents.";

// The seconds in a name, 0 where it is not one of these files.
int64_t seconds_in(const std::string& name) {
  if (!name.starts_with(kEventStem)) return 0;
  int64_t seconds = 0;
  std::from_chars(name.data() + kEventStem.size(), name.data() + name.size(), seconds);
  return seconds;
}

// Readers go through a folder's files in the order of their names, which begin with the time. A clock that
// went back must not put this file before those of the run's earlier parts: it is later than all of them.
std::string event_file_name(const fs::path& output, double time) {
  auto seconds = static_cast<int64_t>(time);
  for (const auto& entry : fs::directory_iterator(output))
    seconds = std::max(seconds, seconds_in(entry.path().filename().string()) + 1);
  return formatted("{}{}.plimsoll", kEventStem, seconds);
}

}  // namespace

RunLog::RunLog(RunFolder& output, int64_t resumed_step, bool tensorboard, const LineLog::Visit& visit,
               const LineLog::Visit& visit_evaluation, RunObserver& observer)
    : observer_(&observer) {
  metrics_.emplace(output, resumed_step, visit, visit_evaluation, observer);
  events_.emplace(output.begin_log("events.jsonl"), std::numeric_limits<int64_t>::max());
  const double now = wall_time();
  if (tensorboard)
    tensorboard_.emplace(output.begin_log(event_file_name(output.path(), now)), now, resumed_step + 1);
}

void RunLog::step(const StepMetrics& m) {
  if (metrics_) metrics_->step(m);
  if (!tensorboard_) return;
  const std::array<Scalar, 6> scalars = {
      {{"train/learning_rate", m.learning_rate},
       {"train/tokens_per_second", static_cast<double>(m.tokens) / m.seconds},
       {"train/data_wait_seconds", m.data_wait},
       {"memory/process_bytes", static_cast<double>(m.rss)},
       {"train/loss", m.loss},
       {"train/grad_norm", m.grad_norm}}};
  // A step without a target has no loss and no gradient.
  const size_t count = std::isnan(m.loss) && m.grad_norm == 0 ? scalars.size() - 2 : scalars.size();
  tensorboard_->write(m.time, m.step, std::span(scalars).first(count));
}

void RunLog::evaluation(const EvaluationMetrics& m) {
  if (metrics_) metrics_->evaluation(m);
  if (!tensorboard_) return;
  std::vector<std::string> names;
  for (const Metric& metric : m.of_task) names.push_back("eval/" + std::string(metric.name));
  std::vector<Scalar> scalars = {{"eval/loss", m.loss}};
  for (size_t i = 0; i < names.size(); ++i) scalars.push_back({names[i].c_str(), m.of_task.all.at(i).value});
  tensorboard_->write(wall_time(), m.step, scalars);
}

void RunLog::event(std::string_view kind, int64_t step, const nlohmann::ordered_json& details) {
  if (!events_) return;
  nlohmann::ordered_json line = {{"time", wall_time()}, {"step", step}, {"event", kind}};
  if (details.is_object()) line.update(details);
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  observer_->logged(kind, text);
  events_->write(text);
}

void log_stop(RunLog& log, int64_t step, const std::string& reason) {
  try {
    log.write_pending();
    log.event("stop", step, {{"reason", reason}});
  } catch (const StoppedError&) {  // the first error is the one to report
  }
}

}  // namespace plimsoll
