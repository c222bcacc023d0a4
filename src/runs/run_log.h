// Writes all logs of a run while it runs: its own, and TensorBoard's where asked for.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "files/event_file.h"
#include "runs/metrics.h"

namespace plimsoll {

class RunLog {
 public:
  // Writes nothing: of a process whose run another one logs.
  RunLog() = default;
  // Continues after `resumed_step`; lines of later steps are dropped. Visits and observer are MetricsLog's.
  RunLog(RunFolder& output, int64_t resumed_step, bool tensorboard, const LineLog::Visit& visit,
         const LineLog::Visit& visit_evaluation, RunObserver& observer);

  void step(const StepMetrics& metrics);  // allocates nothing
  void evaluation(const EvaluationMetrics& metrics);
  // "start", "resume", "save", "signal", "stop", "end"; `details` are further fields of the line.
  void event(std::string_view kind, int64_t step, const nlohmann::ordered_json& details = {});
  void write_pending() {
    if (metrics_) metrics_->write_pending();
  }

 private:
  std::optional<MetricsLog> metrics_;
  std::optional<LineLog> events_;
  RunObserver* observer_ = &nobody();
  std::optional<EventFile> tensorboard_;
};

// Writes what could not be written yet, and the line of a run that has to stop; a disk that takes no line is
// no further error.
void log_stop(RunLog& log, int64_t step, const std::string& reason);

}  // namespace plimsoll
