#include "fleet/top/progress.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/regular_file.h"
#include "base/strings.h"
#include "base/units.h"

namespace plimsoll::top {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kTail = 64 << 10;
constexpr size_t kSteps = 20;

// The whole lines of the end of a file that are objects, oldest first; none where it is not there, or no
// file.
std::vector<json> last_objects(const fs::path& path) {
  std::string text;
  try {
    text = read_end(path, kTail);
  } catch (const Error&) {
    return {};
  }
  std::vector<json> found;
  for (const std::string& line : split(text, '\n'))
    if (json one = read_json_text(line); one.is_object()) found.push_back(std::move(one));
  return found;
}

// None of none.
std::optional<double> median_of_last(std::vector<double> values) {
  if (values.size() > kSteps)
    values.erase(values.begin(), values.end() - static_cast<std::ptrdiff_t>(kSteps));
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Number>
std::optional<Number> number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  constexpr double kMost = 1e15;  // of seconds, bytes and losses
  if constexpr (std::is_same_v<Number, double>)
    return bounded_number(*found, kMost);
  else
    return whole_number<Number>(*found);
}

}  // namespace

std::optional<Progress> read_progress(const fs::path& run_folder) {
  Progress progress;
  bool begun = false;
  for (const json& event : last_objects(run_folder / "events.jsonl")) {
    if (const auto step = number<int64_t>(event, "step")) progress.step = *step;
    const auto kind = event.find("event");
    if (kind == event.end() || (*kind != "start" && *kind != "resume")) continue;
    begun = true;
    progress.steps = number<int64_t>(event, "total_steps").value_or(0);
    progress.planned_bytes = number<int64_t>(event, "planned_process_bytes");
    progress.planned_seconds = number<double>(event, "planned_seconds_per_step");
    progress.ranks = std::max<int64_t>(1, number<int64_t>(event, "ranks").value_or(1));
  }
  std::vector<double> seconds, waiting;
  for (const json& step : last_objects(run_folder / "metrics.jsonl")) {
    if (const auto done = number<int64_t>(step, "step"))
      progress.step = std::max(progress.step, *done), begun = true;
    const auto took = number<double>(step, "seconds"), waited = number<double>(step, "sending_seconds");
    if (took) seconds.push_back(*took);
    if (took && waited && *took > 0) waiting.push_back(std::clamp(*waited / *took, 0.0, 1.0));
    progress.loss = number<double>(step, "loss");
    progress.slowest = number<int64_t>(step, "slowest_rank");
    progress.slower = number<double>(step, "slower");
  }
  if (!begun) return std::nullopt;
  for (const json& line : last_objects(run_folder / "eval.jsonl")) {
    progress.eval_loss = number<double>(line, "loss");
    if (progress.eval_loss)
      progress.best_loss = std::min(progress.best_loss.value_or(*progress.eval_loss), *progress.eval_loss);
  }
  progress.step_seconds = median_of_last(std::move(seconds));
  progress.waiting_share = median_of_last(std::move(waiting));
  return progress;
}

std::string loss_words(const std::optional<double>& loss) {
  if (!loss || !std::isfinite(*loss)) return "-";
  constexpr double kWide = 1e4;
  return format_number(std::abs(*loss) < kWide ? "%.4f" : "%.3g", *loss);
}

}  // namespace plimsoll::top
