// The message of a refusal: by how much, where, and what would fit.
#include <algorithm>

#include "base/strings.h"
#include "base/units.h"
#include "plan/search/fitting_plans.h"
#include "plan/search/plan.h"

namespace plimsoll {
namespace {

// Of all that the budget bounds.
std::string largest_components(const Plan& plan) {
  std::vector<Component> components = device_components(plan);
  if (!plan.request.target.own_memory)
    for (const Component& component : plan.host_components()) components.push_back(component);
  std::stable_sort(components.begin(), components.end(),
                   [](const Component& a, const Component& b) { return a.bytes > b.bytes; });
  components.resize(std::min<size_t>(components.size(), 3));
  std::string text;
  for (const Component& component : components)
    text += (text.empty() ? "" : ", ") + component.name + " " + format_bytes(component.bytes);
  return text;
}

// Keys of the recipe that hold the planner back, with the line that lets it go.
struct Hold {
  bool set;
  const char* key;
  void (*release)(PlanRequest&);
};

std::vector<Hold> holds(const PlanRequest& request) {
  return {{request.choices.micro_batch.has_value(), "batch.micro=auto",
           [](PlanRequest& r) { r.choices.micro_batch.reset(); }},
          {request.choices.recompute.has_value(), "memory.recompute=auto",
           [](PlanRequest& r) { r.choices.recompute.reset(); }},
          {request.choices.offload.has_value(),
           request.choices.offload_of_tier ? "memory.tier=null" : "memory.offload=auto",
           [](PlanRequest& r) { r.choices.offload.reset(); }},
          {request.choices.loss_chunk.has_value(), "memory.loss_chunk=auto",
           [](PlanRequest& r) { r.choices.loss_chunk.reset(); }},
          {request.choices.graphs == UseGraphs::on, "memory.graphs=auto",
           [](PlanRequest& r) { r.choices.graphs = UseGraphs::automatic; }}};
}

// What would fit if the recipe held less fast; every line was planned.
std::string ways_text(const Plan& plan) {
  TextTable table({false, true, false});
  bool any = false;
  PlanRequest open = plan.request;
  std::string sets;
  for (const Hold& hold : holds(plan.request)) {
    if (!hold.set) continue;
    hold.release(open);
    sets += (sets.empty() ? "--set " : " --set ") + std::string(hold.key);
    const auto other = FittingPlans(open).within(open.target.budget);
    if (!other) continue;
    table.add_row({variant_words(plan.request.workload.experiment, other->variant),
                   format_bytes(other->memory_bytes()), sets});
    any = true;
    break;
  }
  return any ? "\n  lossless ways that fit:\n" + table.render("    ") : "";
}

// Something that the plan takes more of than it may.
struct Shortage {
  std::string who;  // "the host needs 546 MiB"
  int64_t may = 0;
  std::string source;
};

// The memory that the plan is made for first.
std::vector<Shortage> shortages(const Plan& plan) {
  const Budget& budget = plan.request.target.budget;
  std::vector<Shortage> all;
  if (!plan.fits_device() || !plan.fits_process())
    all.push_back({std::string(plan.request.target.own_memory ? "device" : "the process") + " needs " +
                       format_bytes_up(plan.memory_bytes()),
                   memory_budget(plan.request).value_or(0),
                   budget.device_source +
                       (budget.of_free ? "; " + format_bytes(budget.free_bytes) + " are free" : "")});
  if (!plan.fits_host())
    all.push_back(
        {"host needs " + format_bytes_up(plan.host_bytes()), *budget.host_bytes, budget.host_source});
  if (!plan.fits_disk())
    all.push_back({"what is offloaded needs " + format_bytes_up(plan.disk_bytes()) + " of disk",
                   *budget.disk_bytes, "memory.disk"});
  return all;
}

std::string shortages_text(const Plan& plan) {
  std::string text;
  for (const Shortage& shortage : shortages(plan))
    text += (text.empty() ? "does not fit   " : ",\n  and ") + shortage.who + ", " +
            format_bytes(shortage.may) + " may be used (" + shortage.source + ")";
  return text;
}

// With what it takes of other memories than the one that is named first, where those are short too.
std::string smallest_text(const Plan& plan) {
  const Variant& variant = plan.smallest.variant;
  const Budget& budget = plan.request.target.budget;
  std::string beside;
  const auto add = [&](int64_t bytes, const std::optional<int64_t>& limit, const char* where) {
    if (limit && bytes > *limit) beside += " and " + format_bytes_up(bytes) + where;
  };
  add(plan.request.target.host.total() + plan.smallest.host_bytes, budget.host_bytes, " of the host");
  add(plan.smallest.disk_bytes, budget.disk_bytes, " of disk");
  return "smallest possible: " + format_bytes_up(memory_bytes(plan.request, plan.smallest)) + beside + " (" +
         variant_words(plan.request.workload.experiment, variant) + ")" +
         (plan.search_ended ? "; the search ended at its limit of work, less may do" : "");
}

std::string host_refusal(const Plan& plan) {
  TextTable table({false, true});
  table.add_row({"host"});
  for (const Component& component : plan.host_components())
    table.add_row({component.name, format_bytes(component.bytes)});
  return shortages_text(plan) + "\n" + table.render("  ") +
         "  smallest possible: " + format_bytes_up(plan.host_bytes());
}

// Where the memory runs short, and what is largest there.
std::string memory_refusal(const Plan& plan) {
  const int64_t limit = memory_budget(plan.request).value_or(0);
  std::string text = shortages_text(plan) + "\n";
  if (limit < kMiB)
    text += "  " + format_bytes(limit) +
            " is less than any run takes: a size has a unit, such as --memory 8GiB\n";
  text += "  short by " + format_bytes(plan.memory_bytes() - limit) + " at " + peak_place(plan) +
          "; largest there: " + largest_components(plan);
  std::string ways = ways_text(plan);
  if (!ways.empty() && ways.back() == '\n') ways.pop_back();
  return text + ways + "\n  " + smallest_text(plan);
}

}  // namespace

std::string refusal_text(const Plan& plan) {
  if (!plan.fits_device() || !plan.fits_process()) return memory_refusal(plan);
  if (!plan.fits_host()) return host_refusal(plan);
  return shortages_text(plan) +
         "\n  smallest possible: --set memory.disk=" + std::to_string(plan.disk_bytes()) + "B (" +
         variant_words(plan.request.workload.experiment, plan.variant) + ")";
}

}  // namespace plimsoll
