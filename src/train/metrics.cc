#include "train/metrics.h"

#include <algorithm>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "io/atomic.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// A run that died may have left lines after its last checkpoint, the last of them cut off.
void drop_lines_after(const fs::path& file, int64_t step) {
  std::ifstream in(file);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.contains("step") || json["step"].get<int64_t>() > step) continue;
    kept += line + "\n";
  }
  write_file_atomically(file, kept);
}

std::FILE* open_log(const fs::path& file, int64_t resumed_step) {
  if (fs::exists(file)) drop_lines_after(file, resumed_step);
  std::FILE* opened = std::fopen(file.c_str(), "a");
  if (opened == nullptr) throw StoppedError(file.string() + ": cannot be written");
  return opened;
}

}  // namespace

MetricsLog::MetricsLog(const fs::path& output, int64_t resumed_step)
    : steps_(open_log(output / "metrics.jsonl", resumed_step)),
      evaluations_(open_log(output / "eval.jsonl", resumed_step)) {}

void MetricsLog::step(const StepMetrics& m) {
  std::fprintf(steps_.get(),
               "{\"step\": %lld, \"loss\": %.9g, \"grad_norm\": %.9g, \"lr\": %.9g, \"tokens\": %lld, "
               "\"seconds\": %.6f, \"data_wait\": %.6f}\n",
               static_cast<long long>(m.step), m.loss, m.grad_norm, m.learning_rate,
               static_cast<long long>(m.tokens), m.seconds, m.data_wait);
  std::fflush(steps_.get());
}

void MetricsLog::evaluation(int64_t step, double loss, int64_t tokens, double seconds) {
  std::fprintf(evaluations_.get(),
               "{\"step\": %lld, \"loss\": %.9g, \"target_tokens\": %lld, \"seconds\": %.3f}\n",
               static_cast<long long>(step), loss, static_cast<long long>(tokens), seconds);
  std::fflush(evaluations_.get());
}

double median_after_warmup(std::vector<double> values) {
  if (values.size() > 2) values.erase(values.begin(), values.begin() + 2);
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace plimsoll
