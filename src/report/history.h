// A run as its folder shows it: finished, stopped, killed, or still running.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll {

struct StepPoint {
  int64_t step = 0;  // counted from 1
  double loss = 0;   // NaN: the step had none, or none that is finite
  double learning_rate = 0;
  int64_t tokens = 0;
  double seconds = 0;
  int64_t rss = 0;  // of the process, in bytes; 0 where the run did not write it
  // With several devices: seconds in which the first waited for others, the rank that computed longest in the step
  // before (-1: not known), and how much longer than the median.
  double waited = 0;
  int64_t slowest = -1;
  double slower = 0;
  [[nodiscard]] double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
};

struct EvalPoint {
  int64_t step = 0;
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics = {};  // other than the loss, by name
  // The loss or a metric, by its name; NaN where it is absent.
  [[nodiscard]] double value(std::string_view goal) const;
};

struct RunEvent {
  double time = 0;  // seconds since 1970
  int64_t step = 0;
  std::string kind;    // "start", "resume", "save", "signal", "stop", "end"
  std::string detail;  // in words; may be empty
};

enum class RunState : uint8_t { finished, interrupted, stopped, running, killed };

// Processes that shared each step of the latest start.
struct RankCount {
  int64_t count = 1;
  std::vector<int64_t> bytes = {};  // the peak of each, of run.json; empty before the end
};

struct RunHistory {
  std::filesystem::path folder;
  RunState state = RunState::killed;
  std::vector<StepPoint> steps;  // ascending
  std::vector<EvalPoint> evaluations;
  std::vector<RunEvent> events;  // in the order in which they happened
  // Steps of the latest start; 0 where they are not known.
  int64_t total_steps = 0;
  int64_t planned_process_bytes = 0, planned_device_bytes = 0;
  double planned_seconds_per_step = 0;
  // Measured bytes of run.json, which the end of a run writes; 0 before.
  int64_t measured_device_bytes = 0, measured_process_bytes = 0;
  RankCount ranks;
  // From recipe.yaml: "Qwen/Qwen2.5-0.5B", "facts/train.parquet", "lora, rank 16"; empty where there is no
  // such file.
  std::string model, data, method;
  std::string goal = "loss";   // what the best evaluation is found by (save.best)
  std::string batch, kernels;  // "16 = 2 x 8", "avx512, 2 threads"
  std::string end_reason;      // why a finished run took fewer steps than planned; empty: it took all
  std::vector<std::pair<std::string, std::string>> settings;  // keys of recipe.yaml and their values as YAML

  [[nodiscard]] int64_t last_step() const { return steps.empty() ? 0 : steps.back().step; }
};

// Reads the logs of docs/reference/json.md, also while the run is running: a last line that is cut off does not count.
// Throws UsageError where the folder holds no run, DamagedError for a line that is not one of a log.
RunHistory read_history(const std::filesystem::path& folder);

// "finished", "interrupted and saved", ...
const char* state_words(RunState state);
// The same of a run: "ended early" where it has finished before its last step.
std::string state_words(const RunHistory& run);
// Seconds to its last step; none unless it runs and has taken steps.
std::optional<double> seconds_left(const RunHistory& run);

// Medians of what is measured at each step, of those after the first two.
double median_rate(const RunHistory& run);
double median_seconds(const RunHistory& run);
// The peak that the process measured, or where it has not ended the largest after a step.
int64_t largest_rss(const RunHistory& run);
// A run on several devices, as one.
struct RanksOfRun {
  int64_t together = 0, largest = 0, largest_rank = -1;  // bytes; 0: not known yet
  double waiting = 0;                                    // share of all steps
  int64_t slowest = -1;                                  // in most steps; -1: not known
  double slower = 0;                                     // in those, than the median, on average
};
RanksOfRun ranks_of(const RunHistory& run);
// "3 · 420 MiB at most (rank 1), 1.2 GiB together · waiting 4 % · slowest rank 2 (+18 %)"; empty where it has one.
std::string ranks_words(const RunHistory& run);
// The first of the best ones by the loss or a metric; none where no evaluation has it.
std::optional<EvalPoint> best_evaluation(const RunHistory& run, std::string_view goal);
// 2026-11-21 14:03:12, in local time.
std::string clock_words(double time);
// "saved", "killed and resumed from here", ...: an event in words.
std::string event_words(const RunEvent& event);

}  // namespace plimsoll
