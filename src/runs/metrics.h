// The logs of a run folder. metrics.jsonl: one object a step; eval.jsonl: one an evaluation; events.jsonl:
// what happened (docs/reference/json.md). Lines are written at once. A value that is not finite is null.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/append_file.h"
#include "files/run_folder.h"
#include "runs/observer.h"
#include "tasks/task.h"

namespace plimsoll {

// A step among several devices, as this one's process sees it.
struct StepOfRanks {
  double sending = 0;    // seconds in which it waited for others and for what they sent
  int64_t slowest = -1;  // that computed longest in the step before; -1: in none yet
  double slower = 0;     // and how much longer than the median
};

struct StepMetrics {
  int64_t step = 0;      // counted from 1
  double loss = 0;       // per target token; NaN where the step had none
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  int64_t tokens = 0;  // real tokens of the step
  double seconds = 0;
  double data_wait = 0;                   // seconds of them that the step waited for data
  int64_t rss = 0;                        // of the process after the step, in bytes
  double time = 0;                        // seconds since 1970
  Metrics of_task = {};                   // in addition to the loss
  std::optional<double> loss_scale = {};  // that the step ran with, of runs in fp16
  std::optional<StepOfRanks> ranks = {};  // of several
};

struct EvaluationMetrics {
  int64_t step = 0;
  double loss = 0;     // per target token, or what the task counts
  int64_t tokens = 0;  // those
  double seconds = 0;
  Metrics of_task = {};
};

// "  accuracy 0.8125  margin 0.53": one after the other; "" without metrics.
std::string metric_words(const Metrics& metrics);

// "debug   step 5  gradient norm 0.81  410 tokens  31 ms, of them 0 ms for data  resident 91.3 MiB".
std::string debug_words(const StepMetrics& metrics);

// A file of lines, appended to. Throws StoppedError where it cannot be written.
class LineLog {
 public:
  // Called with each line that stays.
  using Visit = std::function<void(const nlohmann::json& line)>;
  // A run that died may have left lines after its last checkpoint, the last of them cut off: the file is cut
  // before the first line of a later step than `last_step`, or that is damaged.
  LineLog(const std::filesystem::path& path, int64_t last_step, const Visit& visit = {});
  void write(std::string_view line);  // allocates nothing for lines of up to 1 KiB
  // A line that could not be written waits for this, or for the next one.
  void write_pending();

 private:
  AppendFile file_;
  std::string line_;  // with its newline, so that it is written at once; empty once it is
};

class MetricsLog {
 public:
  // Keeps the lines of steps up to `resumed_step` that an earlier part of the run wrote. `visit` sees those
  // of steps. The observer hears each line before it is written, and outlives the log.
  MetricsLog(RunFolder& output, int64_t resumed_step, const LineLog::Visit& visit = {},
             const LineLog::Visit& visit_evaluation = {}, RunObserver& observer = nobody());
  void step(const StepMetrics& metrics);  // allocates nothing
  void evaluation(const EvaluationMetrics& metrics);
  void write_pending() {
    steps_.write_pending();
    evaluations_.write_pending();
  }

 private:
  LineLog steps_, evaluations_;
  RunObserver& observer_;
};

// The median of seconds or rates by step, without the steps before pages and caches are warm. 0 where there
// are no others.
double median_after_warmup(std::vector<double> values);

// Seconds since 1970.
double wall_time();

}  // namespace plimsoll
