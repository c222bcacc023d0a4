// metrics.jsonl: one object a step; eval.jsonl: one an evaluation. Lines are flushed as they are written.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

namespace plimsoll {

struct StepMetrics {
  int64_t step = 0;      // counted from 1
  double loss = 0;       // per target token
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  int64_t tokens = 0;  // real tokens of the step
  double seconds = 0;
  double data_wait = 0;  // seconds of them that the step waited for data
};

class MetricsLog {
 public:
  // Keeps the lines of steps up to `resumed_step` that an earlier part of the run wrote; drops the rest.
  MetricsLog(const std::filesystem::path& output, int64_t resumed_step);
  void step(const StepMetrics& metrics);  // allocates nothing
  void evaluation(int64_t step, double loss, int64_t tokens, double seconds);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> steps_, evaluations_;
};

// Of seconds or rates by step: what a step does once pages and caches are warm. 0 where there are none.
double median_after_warmup(std::vector<double> values);

}  // namespace plimsoll
