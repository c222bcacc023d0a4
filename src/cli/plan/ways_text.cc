// Suggestions under a refusal, as text and as JSON.
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/units.h"
#include "cli/plan/plan_command.h"
#include "plan/search/run_time.h"
#include "report/event_stream.h"

namespace plimsoll {

std::string ways_text(const std::vector<Way>& ways) {
  if (ways.empty()) return "";
  std::string text = "\n  what would fit, each planned for real:";
  for (const Way& way : ways) {
    text += formatted("\n    {}: {}{}, {} a step\n      {}", way.effect, format_bytes(way.memory_bytes),
                      way.disk_bytes > 0 ? formatted(" and {} of disk", format_bytes(way.disk_bytes)) : "",
                      duration_words(way.seconds_per_step), way.command);
  }
  return text;
}

std::string told_ways(const std::vector<Way>& ways) {
  if (EventStream* const events = EventStream::of_process()) events->set_ways(ways_json(ways));
  return ways_text(ways);
}

nlohmann::ordered_json ways_json(const std::vector<Way>& ways) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Way& way : ways)
    list.push_back({{"command", way.command},
                    {"effect", way.effect},
                    {"same_result", way.same_result},
                    {"memory_bytes", way.memory_bytes},
                    {"disk_bytes", way.disk_bytes},
                    {"seconds_per_step", way.seconds_per_step}});
  return list;
}

}  // namespace plimsoll
