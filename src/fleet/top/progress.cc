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
  }
  std::vector<double> seconds;
  for (const json& step : last_objects(run_folder / "metrics.jsonl")) {
    if (const auto done = number<int64_t>(step, "step"))
      progress.step = std::max(progress.step, *done), begun = true;
    if (const auto took = number<double>(step, "seconds")) seconds.push_back(*took);
    progress.loss = number<double>(step, "loss");
  }
  if (!begun) return std::nullopt;
  for (const json& line : last_objects(run_folder / "eval.jsonl")) {
    progress.eval_loss = number<double>(line, "loss");
    if (progress.eval_loss)
      progress.best_loss = std::min(progress.best_loss.value_or(*progress.eval_loss), *progress.eval_loss);
  }
  if (seconds.size() > kSteps)
    seconds.erase(seconds.begin(), seconds.end() - static_cast<std::ptrdiff_t>(kSteps));
  if (!seconds.empty()) {
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                     seconds.end());
    progress.step_seconds = seconds[seconds.size() / 2];
  }
  return progress;
}

std::string loss_words(const std::optional<double>& loss) {
  if (!loss || !std::isfinite(*loss)) return "-";
  constexpr double kWide = 1e4;
  return format_number(std::abs(*loss) < kWide ? "%.4f" : "%.3g", *loss);
}

}  // namespace plimsoll::top
