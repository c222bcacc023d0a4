#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/print.h"
#include "cli/commands.h"

namespace plimsoll {
namespace {

std::string owner(const KeyReport& report) {
  return report.tool ? std::string(to_string(*report.tool)) : "other tools";
}

// "LLaMA-Factory 0.9.5"
std::string versioned(const KeyReport& report) {
  if (report.of_scripts) return "transformers' scripts, 5.23.0";
  return owner(report) + (report.tool ? " " + to_string(report.version.version) : "");
}

size_t requested(const KeyReport& report) {
  size_t count = 0;
  for (const KeyReport::NoEffect& key : report.no_effect) count += key.is_off ? 0 : 1;
  return count;
}

}  // namespace

std::string key_report_comments(const KeyReport& report) {
  std::string notes;
  for (const auto& [topic, note] : report.notes) notes += formatted("# {}\n", printable(note));
  if (report.empty()) return notes;
  std::string text = formatted("# Keys of {}, and what they became:\n", owner(report));
  for (const KeyReport::Mapped& key : report.mapped)
    text += formatted("#   {}  ->  {}\n", printable(key.theirs), printable(key.ours));
  if (!report.defaults.empty())
    text += formatted("# Defaults of {} where the recipe says nothing and ours is another{}:\n",
                      versioned(report),
                      report.version.is_assumed ? " (the newest known; --as says another)" : "");
  for (const std::string& key : report.defaults) text += formatted("#   {}\n", printable(key));
  if (!report.no_effect.empty()) text += "# Without effect here:\n";
  for (const KeyReport::NoEffect& key : report.no_effect)
    text += formatted("#   {}  ({})\n", printable(key.theirs), printable(key.reason));
  return text + notes;
}

std::string key_report_notes(const KeyReport& report, const std::string& recipe) {
  std::string notes;
  for (const auto& [topic, note] : report.notes) notes += formatted("note    {}\n", printable(note));
  if (report.empty()) return notes;
  const auto count = [](size_t number, const std::string& what) {
    return formatted("{} {}{}", number, what, number == 1 ? "" : "s");
  };
  std::string text = formatted("note    keys of {}: {} mapped, {} without effect", owner(report),
                               report.mapped.size(), requested(report));
  if (!report.defaults.empty())
    text += formatted(", {} of {}", count(report.defaults.size(), "default"), versioned(report));
  text += formatted("; `plimsoll recipe {}` lists them\n", recipe);
  for (const KeyReport::NoEffect& key : report.no_effect)
    if (!key.is_off)
      text += formatted("note    {}: '{}' has no effect: {}\n", printable(key.place), printable(key.theirs),
                        printable(key.reason));
  return text + notes;
}

nlohmann::ordered_json key_report_json(const KeyReport& report) {
  nlohmann::ordered_json json = {
      {"tool", report.tool ? nlohmann::ordered_json(to_string(*report.tool)) : nullptr},
      {"version", report.tool ? nlohmann::ordered_json(to_string(report.version.version)) : nullptr},
      {"version_is_assumed", report.version.is_assumed},
      {"mapped", nlohmann::ordered_json::array()},
      {"no_effect", nlohmann::ordered_json::array()},
      {"defaults", report.defaults},
      {"notes", nlohmann::ordered_json::array()}};
  for (const KeyReport::Mapped& key : report.mapped)
    json["mapped"].push_back({{"place", key.place}, {"theirs", key.theirs}, {"ours", key.ours}});
  for (const KeyReport::NoEffect& key : report.no_effect)
    json["no_effect"].push_back(
        {{"place", key.place}, {"theirs", key.theirs}, {"reason", key.reason}, {"off", key.is_off}});
  for (const auto& [topic, note] : report.notes) json["notes"].push_back(note);
  return json;
}

}  // namespace plimsoll
