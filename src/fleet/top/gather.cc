#include "fleet/top/gather.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/proc_file.h"
#include "base/system_memory.h"
#include "fleet/queue/attempt.h"
#include "fleet/queue/machine_record.h"
#include "fleet/queue/memory_history.h"
#include "fleet/top/progress.h"

namespace plimsoll::top {
namespace {

namespace fs = std::filesystem;
using queue::State;

constexpr size_t kShownOver = 10;
constexpr size_t kShownForeign = 5;
constexpr int64_t kLeastForeign = 64 << 20;

std::map<std::string, double> pressure_now() {
  std::map<std::string, double> found;
  for (const char* kind : {"cpu", "memory", "io"}) {
    const std::string text = read_proc(fs::path("/proc/pressure") / kind);
    const size_t at = text.find("some avg10=");
    if (at != std::string::npos) found[kind] = std::strtod(text.c_str() + at + 11, nullptr);
  }
  return found;
}

}  // namespace

std::optional<double> Gatherer::cores_of(int64_t ticks, int64_t before) const {
  if (elapsed_ <= 0) return std::nullopt;
  return static_cast<double>(std::max<int64_t>(0, ticks - before)) /
         static_cast<double>(sysconf(_SC_CLK_TCK)) / elapsed_;
}

Run Gatherer::look_at_run(const queue::Entry& entry, const std::map<pid_t, queue::Process>& processes) {
  Run run;
  run.id = entry.id;
  run.name = entry.name;
  run.state = std::string(name_of(entry.state));
  run.note = entry.note;
  run.reserved = entry.need.host_bytes;
  run.device_bytes = entry.need.device_bytes;
  run.threads = entry.need.threads;
  run.attempts = entry.attempts;
  bool elsewhere = false;
  if (entry.attempts > 0) {
    const queue::Attempt last = store_.attempts(entry.id).back();
    run.started = last.started;
    run.ended = last.ended;
    run.devices = last.cards;
    if (last.cards.empty()) run.devices = {host_name_};
    elsewhere = !last.job.empty();
    if (last.peak_bytes > 0) run.peak = last.peak_bytes;
    if (!entry.output.empty()) run.progress = read_progress(entry.output);
  }
  if (entry.state != State::running) return run;
  const std::filesystem::path folder = store_.folder_of(entry.id, entry.attempts);
  const auto history = queue::kept_memory(folder);
  if (const auto growth = history ? queue::growth_of(*history) : std::nullopt)
    run.growth = growth->bytes_per_second;
  if (elsewhere) {  // its supervisor keeps it, some seconds late
    if (history && !history->bytes().empty()) run.used = history->bytes().back();
    return run;
  }
  const queue::AttemptState state = queue::look_at(folder);
  if (state.life != queue::Life::alive) {
    run.growth.reset();
    return run;
  }
  of_runs_.insert(state.supervisor);
  int64_t ticks = 0, before = 0;
  run.used = 0;
  for (const pid_t pid : queue::descendants(state.supervisor, processes)) {
    *run.used += queue::shared_out_memory(pid);
    ++run.processes;
    of_runs_.insert(pid);
    ticks += processes.at(pid).cpu_ticks;
    if (const auto known = ticks_.find(pid); known != ticks_.end()) before += known->second;
  }
  run.cores = cores_of(ticks, before);
  return run;
}

Frame Gatherer::take() {
  Frame frame;
  frame.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  of_runs_.clear();
  elapsed_ = taken_ > 0 ? frame.time - taken_ : 0;
  taken_ = frame.time;
  frame.worker = queue::has_worker(store_.folder());
  frame.paused = store_.paused();
  frame.draining = store_.draining();
  frame.memory = total_memory();
  frame.available = free_();
  double load = 0;
  if (getloadavg(&load, 1) == 1) frame.load = load;
  frame.pressure = pressure_now();

  const std::map<pid_t, queue::Process> processes = queue::all_processes();
  const queue::Machine machine =
      queue::recorded_machine(store_.folder())
          .value_or(
              queue::Machine{frame.memory, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), {}, "cpu:0"});
  host_name_ = machine.host;
  Device host{machine.host, machine.host_bytes, 0, 0, 0, machine.threads, 0};
  for (const queue::Card& card : machine.cards)
    frame.devices.push_back({card.name, card.bytes, 0, std::nullopt, 0, 0, 0});
  for (const queue::Entry& entry : store_.open_entries_and_last(kShownOver)) {
    frame.runs.push_back(look_at_run(entry, processes));
    const Run& run = frame.runs.back();
    if (entry.state != State::running) continue;
    host.reserved += run.reserved;
    host.threads_reserved += run.threads;
    *host.used += run.used.value_or(0);
    ++host.runs;
    for (Device& card : frame.devices) {
      if (std::find(run.devices.begin(), run.devices.end(), card.name) == run.devices.end()) continue;
      card.reserved += run.device_bytes;
      ++card.runs;
    }
  }
  frame.devices.insert(frame.devices.begin(), std::move(host));

  std::map<pid_t, int64_t> ticks;
  for (const auto& [pid, process] : processes) {
    ticks[pid] = process.cpu_ticks;
    if (of_runs_.contains(pid) || process.resident_bytes < kLeastForeign || pid == getpid()) continue;
    const auto before = ticks_.find(pid);
    frame.foreign.push_back(
        {pid, process.name, process.resident_bytes,
         before == ticks_.end() ? std::nullopt : cores_of(process.cpu_ticks, before->second)});
  }
  ticks_ = std::move(ticks);
  std::sort(frame.foreign.begin(), frame.foreign.end(),
            [](const Foreign& a, const Foreign& b) { return a.bytes > b.bytes; });
  if (frame.foreign.size() > kShownForeign) frame.foreign.resize(kShownForeign);
  return frame;
}

}  // namespace plimsoll::top
