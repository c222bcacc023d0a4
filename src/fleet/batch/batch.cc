#include "fleet/batch/batch.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/system_memory.h"
#include "fleet/queue/store/machine_record.h"
#include "fleet/top/progress.h"

namespace plimsoll::batch {
namespace {

Bar bar_of(const queue::Store& store, const std::string& host, const queue::Entry& entry,
           const queue::Attempt& attempt, double now) {
  Bar bar;
  bar.id = entry.id;
  bar.number = attempt.number;
  bar.name = entry.name;
  bar.outcome = attempt.outcome;
  bar.done = attempt.done;
  bar.running = !attempt.ended;
  bar.devices = attempt.cards.empty() ? std::vector<std::string>{host} : attempt.cards;
  bar.started = attempt.started;
  bar.ended = std::max(attempt.started, attempt.ended.value_or(now));
  bar.need = attempt.need;
  bar.peak_bytes = attempt.peak_bytes;
  bar.card_peak_bytes = attempt.card_peak_bytes;
  bar.memory = queue::kept_memory(store.folder_of(entry.id, attempt.number));
  if (attempt.number == entry.attempts && !entry.output.empty())
    if (const auto progress = top::read_progress(entry.output)) {
      bar.loss = progress->loss;
      bar.eval_loss = progress->best_loss;
    }
  return bar;
}

bool was_on(const Bar& bar, const std::string& card) {
  return std::find(bar.devices.begin(), bar.devices.end(), card) != bar.devices.end();
}

// All runs share the host; only the runs on a card share that card.
int64_t taken_of(const Batch& batch, const Bar& bar, const std::string& device) {
  if (device == batch.machine.host) return bar.need.host_bytes;
  return was_on(bar, device) ? bar.need.device_bytes : 0;
}

// The highest sum at one time; what `bytes_of` a bar is counts from its start to its end.
template <class BytesOf>
int64_t most_at_once(const Batch& batch, BytesOf&& bytes_of) {
  std::vector<std::pair<double, int64_t>> changes;  // at one time what ends comes first
  for (const Bar& bar : batch.bars) {
    changes.emplace_back(bar.started, bytes_of(bar));
    changes.emplace_back(bar.ended, -bytes_of(bar));
  }
  std::sort(changes.begin(), changes.end());
  int64_t now = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, now += change);
  return most;
}

nlohmann::ordered_json known_or_null(int64_t bytes) {
  return bytes > 0 ? nlohmann::ordered_json(bytes) : nlohmann::ordered_json(nullptr);
}

int64_t capacity_of(const Batch& batch, const std::string& device) {
  if (device == batch.machine.host) return batch.machine.host_bytes;
  for (const queue::MachineCard& card : batch.machine.cards)
    if (card.name == device) return card.bytes;
  return 0;
}

int64_t used_at(const Bar& bar, double time) {
  if (!bar.memory || bar.memory->bytes().empty()) return bar.peak_bytes;
  const auto span = static_cast<size_t>((time - bar.started) / bar.memory->span_seconds());
  return bar.memory->bytes()[std::min(span, bar.memory->bytes().size() - 1)];
}

// Keeps the bars behind the last pause.
void keep_last(std::vector<Bar>& bars, double pause) {
  size_t first = 0;
  double busy_until = 0;
  for (size_t i = 0; i < bars.size(); ++i) {
    if (i > 0 && bars[i].started > busy_until + pause) first = i;
    busy_until = std::max(busy_until, bars[i].ended);
  }
  bars.erase(bars.begin(), bars.begin() + static_cast<std::ptrdiff_t>(first));
}

}  // namespace

Batch take(queue::Store& store, double now, double pause, const std::string& group) {
  std::map<int64_t, queue::Entry> entries;
  for (queue::Entry& one : group.empty() ? store.entries() : store.entries_of(group))
    entries.emplace(one.id, std::move(one));
  Batch batch;
  batch.machine =
      queue::recorded_machine(store.folder()).value_or(queue::Machine{total_memory(), 0, {}, "cpu:0"});
  for (const queue::Attempt& attempt : store.attempts())
    if (const auto entry = entries.find(attempt.entry); entry != entries.end())
      batch.bars.push_back(bar_of(store, batch.machine.host, entry->second, attempt, now));
  std::sort(batch.bars.begin(), batch.bars.end(), [](const Bar& a, const Bar& b) {
    return std::pair(a.started, a.id) < std::pair(b.started, b.id);
  });
  keep_last(batch.bars, pause);
  std::set<int64_t> seen;
  if (!batch.bars.empty()) batch.begin = batch.bars.front().started;
  for (const Bar& bar : batch.bars) {
    batch.end = std::max(batch.end, bar.ended);
    if (!seen.insert(bar.id).second) continue;
    const queue::Entry& entry = entries.at(bar.id);
    ++batch.runs;
    batch.done += entry.state == queue::State::done;
    batch.failed += entry.state == queue::State::failed;
    batch.open += !is_over(entry.state);
    batch.mean_wait += std::max(0.0, bar.started - entry.submitted);
  }
  if (batch.runs > 0) batch.mean_wait /= batch.runs;
  return batch;
}

std::vector<const Bar*> ranked(const Batch& batch) {
  std::vector<const Bar*> bars;
  for (const Bar& bar : batch.bars)
    if (bar.loss || bar.eval_loss) bars.push_back(&bar);
  std::stable_sort(bars.begin(), bars.end(), [](const Bar* a, const Bar* b) {
    if (a->eval_loss.has_value() != b->eval_loss.has_value()) return a->eval_loss.has_value();
    return a->eval_loss ? *a->eval_loss < *b->eval_loss : *a->loss < *b->loss;
  });
  return bars;
}

Course course_of(const Batch& batch, size_t count) {
  Course course{std::vector<int64_t>(count), std::vector<int64_t>(count)};
  if (count == 0) return course;
  const double step = (batch.end - batch.begin) / static_cast<double>(count);
  for (const Bar& bar : batch.bars)
    for (size_t i = 0; i < count; ++i) {
      const double time = batch.begin + (static_cast<double>(i) + 0.5) * step;
      if (time < bar.started || time > bar.ended) continue;
      course.reserved[i] += bar.need.host_bytes;
      course.used[i] += used_at(bar, time);
    }
  return course;
}

double share_reserved(const Batch& batch, const std::string& device) {
  const double room = static_cast<double>(capacity_of(batch, device)) * (batch.end - batch.begin);
  double taken = 0;
  for (const Bar& bar : batch.bars)
    taken += static_cast<double>(taken_of(batch, bar, device)) * (bar.ended - bar.started);
  return room > 0 ? taken / room : 0;
}

int64_t most_reserved(const Batch& batch, const std::string& device) {
  return most_at_once(batch, [&](const Bar& bar) { return taken_of(batch, bar, device); });
}

int64_t most_used(const Batch& batch, const std::string& card) {
  return most_at_once(batch, [&](const Bar& bar) { return was_on(bar, card) ? bar.card_peak_bytes : 0; });
}

nlohmann::ordered_json batch_json(const Batch& batch) {
  constexpr size_t kTimes = 400;
  nlohmann::ordered_json root = {{"begin", batch.begin},
                                 {"end", batch.end},
                                 {"runs", batch.runs},
                                 {"done", batch.done},
                                 {"failed", batch.failed},
                                 {"open", batch.open},
                                 {"mean_wait_seconds", batch.mean_wait}};
  root["devices"] = nlohmann::ordered_json::array();
  std::vector<std::string> names = {batch.machine.host};
  for (const queue::MachineCard& card : batch.machine.cards) names.push_back(card.name);
  for (const std::string& name : names)
    root["devices"].push_back(
        {{"name", name},
         {"capacity_bytes", capacity_of(batch, name)},
         {"most_reserved_bytes", most_reserved(batch, name)},
         {"share_reserved", share_reserved(batch, name)},
         {"most_used_bytes", known_or_null(name == batch.machine.host ? 0 : most_used(batch, name))}});
  const Course course = course_of(batch, batch.bars.empty() ? 0 : kTimes);
  root["host"] = {{"reserved_bytes", course.reserved}, {"used_bytes", course.used}};
  root["attempts"] = nlohmann::ordered_json::array();
  for (const Bar& bar : batch.bars)
    root["attempts"].push_back(
        {{"id", bar.id},
         {"name", bar.name},
         {"number", bar.number},
         {"devices", bar.devices},
         {"started", bar.started},
         {"ended", bar.running ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(bar.ended)},
         {"host_bytes", bar.need.host_bytes},
         {"device_bytes", bar.need.device_bytes},
         {"threads", bar.need.threads},
         {"processes", bar.need.processes},
         {"peak_host_bytes", known_or_null(bar.peak_bytes)},
         {"peak_device_bytes", known_or_null(bar.card_peak_bytes)},
         {"loss", bar.loss ? nlohmann::ordered_json(*bar.loss) : nlohmann::ordered_json(nullptr)},
         {"best_eval_loss",
          bar.eval_loss ? nlohmann::ordered_json(*bar.eval_loss) : nlohmann::ordered_json(nullptr)},
         {"done", bar.done},
         {"outcome", bar.outcome}});
  root["ranked"] = nlohmann::ordered_json::array();
  for (const Bar* bar : ranked(batch)) root["ranked"].push_back(bar->id);
  return root;
}

}  // namespace plimsoll::batch
