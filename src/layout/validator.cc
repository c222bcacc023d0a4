#include "layout/validator.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll::layout {
namespace {

std::string number(int64_t value) { return std::to_string(value); }

std::string described(const Buffer& buffer, int64_t offset) {
  return formatted("{} ({} B at offset {}, ops {}..{})", buffer.name, number(buffer.bytes), number(offset),
                   number(buffer.first), number(buffer.last));
}

bool is_power_of_two(int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

// The faults one buffer can have alone.
std::optional<Verdict> judge_alone(const Buffer& buffer, int64_t offset, int64_t alignment, int64_t top) {
  const auto verdict = [&](Fault fault, const std::string& what) {
    return Verdict{fault, buffer.name, "", formatted("{} {}", described(buffer, offset), what)};
  };
  if (buffer.bytes < 0) return verdict(Fault::bad_size, "has a negative size");
  if (buffer.last < buffer.first) return verdict(Fault::bad_lifetime, "ends before it begins");
  if (offset < 0) return verdict(Fault::negative_offset, "lies below the arena");
  if (offset % alignment != 0) {
    return verdict(Fault::misaligned, formatted("is not aligned to {} B", number(alignment)));
  }
  // Written so that the sum of offset and size, which may overflow, is never formed.
  if (offset > top || buffer.bytes > top - offset) {
    return verdict(Fault::out_of_arena, formatted("ends above the top of the arena, {} B", number(top)));
  }
  return std::nullopt;
}

// A buffer's birth, or its death one op after its last. Deaths sort before the births of the same op.
struct Event {
  int64_t op = 0;
  bool birth = false;
  size_t buffer = 0;
  friend bool operator<(const Event& a, const Event& b) {
    return std::tie(a.op, a.birth, a.buffer) < std::tie(b.op, b.birth, b.buffer);
  }
};

std::vector<Event> events_of(const std::vector<Buffer>& buffers) {
  std::vector<Event> events;
  events.reserve(2 * buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    events.push_back({buffers[i].first, true, i});
    events.push_back({int64_t{buffers[i].last} + 1, false, i});
  }
  std::sort(events.begin(), events.end());
  return events;
}

// Walks over the ops with the live buffers ordered by offset. A buffer that overlaps is reported and left
// out, so the live ones never overlap each other and a new one need only be compared with its two neighbours.
std::vector<Verdict> find_overlaps(const Problem& problem, const std::vector<int64_t>& offsets,
                                   const std::vector<Event>& events) {
  std::vector<Verdict> verdicts;
  std::map<int64_t, size_t> live;  // offset -> buffer
  const auto end_of = [&](size_t buffer) { return offsets[buffer] + problem.buffers[buffer].bytes; };
  for (const Event& event : events) {
    const size_t buffer = event.buffer;
    if (problem.buffers[buffer].bytes == 0) continue;  // shares no byte with anything
    const auto next = live.lower_bound(offsets[buffer]);
    if (!event.birth) {
      if (next != live.end() && next->second == buffer) live.erase(next);
      continue;
    }
    std::optional<size_t> other;
    if (next != live.end() && next->first < end_of(buffer)) other = next->second;
    if (next != live.begin() && end_of(std::prev(next)->second) > offsets[buffer]) {
      other = std::prev(next)->second;
    }
    if (!other) {
      live.emplace_hint(next, offsets[buffer], buffer);
      continue;
    }
    const Buffer& a = problem.buffers[*other];
    const Buffer& b = problem.buffers[buffer];
    verdicts.push_back(
        {Fault::overlap, a.name, b.name,
         formatted("{} overlaps {}", described(a, offsets[*other]), described(b, offsets[buffer]))});
  }
  return verdicts;
}

// The bound is a promise to the user ("no layout is smaller"), so it is counted again, in a way of its own:
// in whole alignments, which cannot overflow once no two live buffers overlap.
std::optional<Verdict> judge_lower_bound(const Problem& problem, int64_t lower_bound,
                                         const std::vector<Event>& events) {
  const int64_t alignment = problem.alignment;
  int64_t live_blocks = 0;
  int64_t most_blocks = 0;
  for (const Event& event : events) {
    const int64_t bytes = problem.buffers[event.buffer].bytes;
    const int64_t blocks = bytes / alignment + (bytes % alignment != 0 ? 1 : 0);
    live_blocks += event.birth ? blocks : -blocks;
    most_blocks = std::max(most_blocks, live_blocks);
  }
  if (lower_bound % alignment == 0 && lower_bound / alignment == most_blocks) return std::nullopt;
  return Verdict{Fault::wrong_lower_bound, "", "",
                 formatted("the lower bound is stated as {} B, but {} blocks of {} B are alive at the peak",
                           number(lower_bound), number(most_blocks), number(alignment))};
}

}  // namespace

std::string_view to_string(Fault fault) {
  switch (fault) {
    case Fault::bad_alignment:
      return "bad_alignment";
    case Fault::wrong_count:
      return "wrong_count";
    case Fault::bad_size:
      return "bad_size";
    case Fault::bad_lifetime:
      return "bad_lifetime";
    case Fault::negative_offset:
      return "negative_offset";
    case Fault::misaligned:
      return "misaligned";
    case Fault::out_of_arena:
      return "out_of_arena";
    case Fault::overlap:
      return "overlap";
    case Fault::wrong_lower_bound:
      return "wrong_lower_bound";
  }
  throw InternalError("layout: unknown fault");
}

std::vector<Verdict> validate(const Problem& problem, const Placement& placement) {
  if (!is_power_of_two(problem.alignment)) {
    return {{Fault::bad_alignment, "", "",
             formatted("alignment {} is no power of two", number(problem.alignment))}};
  }
  const size_t count = problem.buffers.size();
  if (placement.offsets.size() != count) {
    return {{Fault::wrong_count, "", "",
             formatted("{} offsets for {} buffers", number(static_cast<int64_t>(placement.offsets.size())),
                       number(static_cast<int64_t>(count)))}};
  }
  std::vector<Verdict> verdicts;
  for (size_t i = 0; i < count; ++i) {
    auto verdict = judge_alone(problem.buffers[i], placement.offsets[i], problem.alignment, placement.top);
    if (verdict) verdicts.push_back(*std::move(verdict));
  }
  // The sweep relies on sane sizes, lifetimes and offsets: without them its sums could overflow.
  const bool sane =
      std::ranges::all_of(verdicts, [](const Verdict& v) { return v.fault == Fault::misaligned; });
  if (!sane) return verdicts;
  const std::vector<Event> events = events_of(problem.buffers);
  std::ranges::move(find_overlaps(problem, placement.offsets, events), std::back_inserter(verdicts));
  if (!verdicts.empty()) return verdicts;
  if (auto verdict = judge_lower_bound(problem, placement.lower_bound, events)) verdicts.push_back(*verdict);
  return verdicts;
}

void require_valid(const Problem& problem, const Placement& placement) {
  constexpr size_t kShown = 5;  // enough to see the pattern
  const std::vector<Verdict> verdicts = validate(problem, placement);
  if (verdicts.empty()) return;
  std::string message = formatted(
      "the memory layout found by \"{}\" is wrong ({} faults); please report this:", placement.tie_break,
      number(static_cast<int64_t>(verdicts.size())));
  for (size_t i = 0; i < std::min(kShown, verdicts.size()); ++i) {
    message += formatted("\n  {}: {}", to_string(verdicts[i].fault), verdicts[i].text);
  }
  throw InternalError(message);
}

}  // namespace plimsoll::layout
