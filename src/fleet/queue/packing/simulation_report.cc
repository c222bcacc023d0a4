#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/printable.h"
#include "base/strings.h"
#include "base/units.h"
#include "fleet/queue/packing/simulation.h"

namespace plimsoll::queue {
namespace {

std::string percent(double share) {
  std::string text = std::to_string(static_cast<int>(share * 1000 + 0.5));
  if (text.size() == 1) text = "0" + text;
  return formatted("{}.{} %", text.substr(0, text.size() - 1), text.back());
}

}  // namespace

std::string simulation_text(const Workload& workload, const std::vector<Outcome>& outcomes) {
  std::string text = formatted("{} jobs on {} devices; headroom {}, margin {}\n",
                               format_count(static_cast<int64_t>(workload.jobs.size())),
                               format_count(static_cast<int64_t>(workload.machine.cards.size())),
                               percent(workload.headroom), percent(workload.margin));
  TextTable table({false, true, true, true, true, true, true});
  table.add_row({"", "all done", "mean wait", "memory used", "crashes", "jobs", "lost"});
  for (const Outcome& one : outcomes)
    table.add_row({std::string(name_of(one.policy)), format_seconds(one.makespan),
                   format_seconds(one.mean_wait), percent(one.used_share), format_count(one.crashes),
                   format_count(one.crashed_jobs), format_count(one.lost_jobs)});
  return text + table.render("  ");
}

std::string simulation_json(const Workload& workload, const std::vector<Outcome>& outcomes) {
  nlohmann::ordered_json root = {{"jobs", workload.jobs.size()},
                                 {"devices", workload.machine.cards.size()},
                                 {"headroom", workload.headroom},
                                 {"margin", workload.margin},
                                 {"policies", nlohmann::ordered_json::array()}};
  for (const Outcome& one : outcomes)
    root["policies"].push_back(
        {{"policy", name_of(one.policy)},
         {"makespan_seconds", one.makespan},
         {"mean_wait_seconds", one.mean_wait},
         {"used_share", one.used_share},
         {"crashes", one.crashes},
         {"crashed_jobs", one.crashed_jobs},
         {"lost_jobs", one.lost_jobs},
         {"held_jobs", one.held_jobs},
         {"most_at_once", one.most_at_once},
         {"most_reserved_bytes", one.policy == Policy::packed ? nlohmann::ordered_json(one.most_reserved)
                                                              : nlohmann::ordered_json(nullptr)}});
  return json_text(root);
}

}  // namespace plimsoll::queue
