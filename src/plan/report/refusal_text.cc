// The message of a refusal: by how much, where, and what would fit.
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "plan/search/refusal.h"

namespace plimsoll {
namespace {

std::string components_text(const std::vector<Component>& components) {
  std::string text;
  for (const Component& component : components)
    text += formatted("{}{} {}", text.empty() ? "" : ", ", component.name, format_bytes(component.bytes));
  return text;
}

// A variant that would fit if the recipe held less fast; it was planned.
std::string released_text(const ReleasedPlan& plan) {
  std::string sets;
  for (const HoldingKey& key : plan.released)
    sets += (sets.empty() ? "--set " : " --set ") + key.assignment();
  TextTable table({false, true, false});
  table.add_row({plan.words, format_bytes(plan.memory_bytes), sets});
  std::string text = "\n  lossless ways that fit:\n" + table.render("    ");
  if (text.back() == '\n') text.pop_back();
  return text;
}

std::string needs_words(const Shortage& shortage) {
  const std::string bytes = format_bytes_up(shortage.needed);
  switch (shortage.of) {
    case Shortage::Of::device:
      return "device needs " + bytes;
    case Shortage::Of::process:
      return "the process needs " + bytes;
    case Shortage::Of::host:
      return "host needs " + bytes;
    case Shortage::Of::disk:
      return formatted("what is offloaded needs {} of disk", bytes);
  }
  return "";
}

std::string shortages_text(const Refusal& refusal) {
  std::string text;
  for (const Shortage& shortage : refusal.shortages)
    text += formatted("{}{}, {} may be used ({}{})", text.empty() ? "does not fit   " : ",\n  and ",
                      needs_words(shortage), format_bytes(shortage.allowed), shortage.source,
                      shortage.of_free ? formatted("; {} are free", format_bytes(shortage.free_bytes)) : "");
  return text;
}

// With what it takes of other memories than the one that is named first, where those are short too.
std::string smallest_text(const Refusal& refusal) {
  const RefusedVariant& smallest = refusal.smallest;
  std::string beside;
  const auto add = [&](int64_t bytes, const std::optional<int64_t>& limit, const char* where) {
    if (limit && bytes > *limit) beside += formatted(" and {}{}", format_bytes_up(bytes), where);
  };
  add(smallest.host_bytes, refusal.host_limit, " of the host");
  add(smallest.disk_bytes, refusal.disk_limit, " of disk");
  return formatted(
      "smallest possible: {}{} ({}){}", format_bytes_up(smallest.memory_bytes), beside, smallest.words,
      refusal.search_ended ? "; the search ended at its limit of work: less may be possible" : "");
}

std::string host_refusal(const Refusal& refusal) {
  TextTable table({false, true});
  table.add_row({"host"});
  for (const Component& component : refusal.host)
    table.add_row({component.name, format_bytes(component.bytes)});
  return formatted("{}\n{}  smallest possible: {}", shortages_text(refusal), table.render("  "),
                   format_bytes_up(refusal.planned.host_bytes));
}

// Says where the memory runs short, and what is largest there.
std::string memory_refusal(const Refusal& refusal, const Shortage& memory,
                           const std::optional<ReleasedPlan>& released) {
  std::string text = shortages_text(refusal) + "\n";
  if (memory.allowed < kMiB)
    text += formatted("  {} is less than any run takes: write the size with a unit, such as --memory 8GiB\n",
                      format_bytes(memory.allowed));
  text += formatted("  short by {} at {}; largest there: {}", format_bytes(memory.needed - memory.allowed),
                    refusal.place, components_text(refusal.largest));
  return formatted("{}{}\n  {}", text, released ? released_text(*released) : "", smallest_text(refusal));
}

}  // namespace

std::string refusal_text(const Refusal& refusal, const std::optional<ReleasedPlan>& released) {
  if (const Shortage* memory = refusal.of_memory()) return memory_refusal(refusal, *memory, released);
  if (refusal.lacks_host()) return host_refusal(refusal);
  return formatted("{}\n  smallest possible: --set memory.disk={}B ({})", shortages_text(refusal),
                   refusal.sharing * refusal.planned.disk_bytes, refusal.planned.words);
}

std::string refusal_text(const Plan& plan) {
  const Refusal refusal = refusal_of(plan);
  return refusal_text(refusal, refusal.of_memory() != nullptr ? released_plan(plan.request) : std::nullopt);
}

}  // namespace plimsoll
