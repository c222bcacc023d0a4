#include "runs/metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/regular_file.h"
#include "base/units.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// A number as JSON has it.
class Number {
 public:
  explicit Number(double value) {
    if (std::isfinite(value)) {
      std::snprintf(text_.data(), text_.size(), "%.9g", value);
    } else {
      std::snprintf(text_.data(), text_.size(), "null");
    }
  }
  [[nodiscard]] const char* text() const { return text_.data(); }

 private:
  std::array<char, 32> text_;
};

// Bytes of the leading lines that are whole and of a step up to `last_step`.
int64_t bytes_to_keep(const fs::path& file, int64_t last_step, const LineLog::Visit& visit) {
  if (!fs::exists(file)) return 0;
  require_regular(file);
  std::ifstream in(file, std::ios::binary);
  int64_t kept = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) {  // at the end: a line without its newline
    const auto json = read_json_text(line);
    const auto step = json.is_object() ? json.find("step") : json.end();
    if (step == json.end() || !step->is_number_integer() || step->get<int64_t>() > last_step) break;
    kept += static_cast<int64_t>(line.size()) + 1;
    if (visit) visit(json);
  }
  // A file that cannot be read is not cut off.
  if (!in.is_open() || in.bad()) throw StoppedError(file.string() + ": cannot be read.");
  return kept;
}

}  // namespace

std::string debug_words(const StepMetrics& m) {
  return formatted("debug   step {}  gradient norm {}  {} tokens  {}, of them {} for data  resident {}",
                   format_count(m.step), std::to_string(m.grad_norm), format_count(m.tokens),
                   format_seconds(m.seconds), format_seconds(m.data_wait), format_bytes(m.rss));
}

LineLog::LineLog(const fs::path& path, int64_t last_step, const Visit& visit)
    : file_(path, bytes_to_keep(path, last_step, visit)) {
  line_.reserve(kKiB);
}

void LineLog::write(std::string_view line) {
  line_.append(line);
  line_ += '\n';
  write_pending();
}

void LineLog::write_pending() {
  if (line_.empty()) return;
  file_.write(line_);
  line_.clear();
}

std::string metric_words(const Metrics& metrics) {
  std::string text;
  for (const Metric& metric : metrics) {
    std::array<char, 48> value;
    std::snprintf(value.data(), value.size(), " %.4f", metric.value);
    text.append("  ").append(metric.name).append(value.data());
  }
  return text;
}

namespace {

// Appends `, "name": value` of each to a line that has `length` characters.
template <size_t N>
size_t add_metrics(std::array<char, N>& line, size_t length, const Metrics& metrics) {
  for (const Metric& metric : metrics)
    length += static_cast<size_t>(std::snprintf(line.data() + length, line.size() - length, ", \"%.*s\": %s",
                                                static_cast<int>(metric.name.size()), metric.name.data(),
                                                Number(metric.value).text()));
  line[length++] = '}';
  return length;
}

}  // namespace

MetricsLog::MetricsLog(RunFolder& output, int64_t resumed_step, const LineLog::Visit& visit,
                       const LineLog::Visit& visit_evaluation, RunObserver& observer)
    : steps_(output.begin_log("metrics.jsonl"), resumed_step, visit),
      evaluations_(output.begin_log("eval.jsonl"), resumed_step, visit_evaluation),
      observer_(observer) {}

void MetricsLog::step(const StepMetrics& m) {
  std::array<char, 896> line;
  const int length = std::snprintf(
      line.data(), line.size(),
      "{\"step\": %lld, \"loss\": %s, \"grad_norm\": %s, \"lr\": %.9g, \"tokens\": %lld, "
      "\"seconds\": %.6f, \"data_wait\": %.6f, \"rss\": %lld, \"time\": %.3f",
      static_cast<long long>(m.step), Number(m.loss).text(), Number(m.grad_norm).text(), m.learning_rate,
      static_cast<long long>(m.tokens), m.seconds, m.data_wait, static_cast<long long>(m.rss), m.time);
  size_t end = static_cast<size_t>(length);
  if (m.loss_scale)
    end += static_cast<size_t>(
        std::snprintf(line.data() + end, line.size() - end, ", \"loss_scale\": %.9g", *m.loss_scale));
  if (m.ranks)
    end += static_cast<size_t>(
        std::snprintf(line.data() + end, line.size() - end, ", \"sending_seconds\": %.6f", m.ranks->sending));
  if (m.ranks && m.ranks->slowest >= 0)
    end += static_cast<size_t>(std::snprintf(line.data() + end, line.size() - end,
                                             ", \"slowest_rank\": %lld, \"slower\": %.4f",
                                             static_cast<long long>(m.ranks->slowest), m.ranks->slower));
  const std::string_view whole(line.data(), add_metrics(line, end, m.of_task));
  observer_.logged("step", whole);
  steps_.write(whole);
}

void MetricsLog::evaluation(const EvaluationMetrics& m) {
  std::array<char, 640> line;
  const int length = std::snprintf(
      line.data(), line.size(), "{\"step\": %lld, \"loss\": %s, \"target_tokens\": %lld, \"seconds\": %.3f",
      static_cast<long long>(m.step), Number(m.loss).text(), static_cast<long long>(m.tokens), m.seconds);
  const std::string_view whole(line.data(), add_metrics(line, static_cast<size_t>(length), m.of_task));
  observer_.logged("evaluate", whole);
  evaluations_.write(whole);
}

double median_after_warmup(std::vector<double> values) {
  if (values.size() > 2) values.erase(values.begin(), values.begin() + 2);
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace plimsoll
