#include "fleet/top/progress.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/strings.h"

namespace plimsoll::top {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::streamoff kTail = 64 << 10;
constexpr size_t kSteps = 20;

// The whole lines of the end of a file that are objects, oldest first.
std::vector<json> last_objects(const fs::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::streamoff size = file.tellg();
  const std::streamoff begin = std::max<std::streamoff>(0, size - kTail);
  std::string text(static_cast<size_t>(size - begin), '\0');
  file.seekg(begin);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  std::vector<json> found;
  for (const std::string& line : split(text, '\n'))
    if (json one = json::parse(line, nullptr, false); one.is_object()) found.push_back(std::move(one));
  return found;
}

template <class Number>
std::optional<Number> number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<Number>();
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
  if (seconds.size() > kSteps)
    seconds.erase(seconds.begin(), seconds.end() - static_cast<std::ptrdiff_t>(kSteps));
  if (!seconds.empty()) {
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                     seconds.end());
    progress.step_seconds = seconds[seconds.size() / 2];
  }
  return progress;
}

}  // namespace plimsoll::top
