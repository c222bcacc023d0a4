#include "fleet/top/gather.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/proc_file.h"
#include "base/system_memory.h"
#include "fleet/queue/packing/card_capacity.h"
#include "fleet/queue/processes/attempt.h"
#include "fleet/queue/processes/memory_history.h"
#include "fleet/queue/store/machine_record.h"
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

bool is_on(const RunStatus& run, const DeviceStatus& device) {
  return run.state == "running" &&
         std::find(run.devices.begin(), run.devices.end(), device.name) != run.devices.end();
}

// Fills in a GPU as its driver reports it, and what runs and others have there.
void fill_card(const devices::Gpu& gpu, bool pids_known, const std::map<int64_t, std::vector<pid_t>>& trees,
               const std::map<pid_t, queue::Process>& processes, std::vector<RunStatus>& runs,
               DeviceStatus& device) {
  device.model = gpu.name;
  if (gpu.total > 0) device.memory = gpu.total;
  device.problem = gpu.mig ? "is cut into MIG instances" : gpu.problem;
  if (!gpu.problem.empty()) return;
  device.memory_used = gpu.used;
  device.busy_percent = gpu.busy_percent;
  device.used = 0;
  std::set<int64_t> ours;
  for (RunStatus& run : runs) {
    if (!is_on(run, device)) continue;
    const auto tree = trees.find(run.id);
    const std::vector<pid_t> pids = tree == trees.end() ? std::vector<pid_t>{} : tree->second;
    ours.insert(pids.begin(), pids.end());
    const auto used = queue::used_on(gpu, pids, pids_known);
    if (used) run.used_on_card = std::max(run.used_on_card.value_or(0), *used);
    device.used = device.used && used ? std::optional(*device.used + *used) : std::nullopt;
  }
  if (device.used) device.others = std::max<int64_t>(0, gpu.used - *device.used);
  for (const devices::GpuProcess& one : gpu.processes) {
    if (ours.contains(one.pid)) continue;
    const auto found = processes.find(static_cast<pid_t>(one.pid));
    device.processes.push_back({one.pid, found == processes.end() ? "" : found->second.name, one.bytes});
  }
}

}  // namespace

std::optional<double> Gatherer::cores_of(int64_t ticks, int64_t before) const {
  if (elapsed_ <= 0) return std::nullopt;
  return static_cast<double>(std::max<int64_t>(0, ticks - before)) /
         static_cast<double>(sysconf(_SC_CLK_TCK)) / elapsed_;
}

RunStatus Gatherer::look_at_run(const queue::Entry& entry, const std::map<pid_t, queue::Process>& processes) {
  RunStatus run;
  run.id = entry.id;
  run.name = entry.name;
  run.state = std::string(name_of(entry.state));
  run.note = entry.note;
  run.reserved = entry.need.host_bytes;
  run.device_bytes = entry.need.device_bytes;
  run.device_count = entry.need.devices;
  run.threads = entry.need.threads;
  run.attempts = entry.attempts;
  bool elsewhere = false;
  if (const auto attempt = store_.attempt(entry.id, entry.attempts)) {
    const queue::Attempt& last = *attempt;
    run.started = last.started;
    run.ended = last.ended;
    run.devices = last.cards;
    if (last.cards.empty()) run.devices = {host_name_};
    elsewhere = !last.job.empty();
    if (last.peak_bytes > 0) run.peak = last.peak_bytes;
    if (last.card_peak_bytes > 0) run.peak_on_card = last.card_peak_bytes;
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
  trees_[entry.id] = queue::descendants(state.supervisor, processes);
  int64_t ticks = 0, before = 0;
  run.used = 0;
  for (const pid_t pid : trees_[entry.id]) {
    const int64_t bytes = queue::shared_out_memory(pid);
    *run.used += bytes;
    run.processes.largest = std::max(run.processes.largest.value_or(0), bytes);
    ++run.processes.count;
    of_runs_.insert(pid);
    ticks += processes.at(pid).cpu_ticks;
    if (const auto known = ticks_.find(pid); known != ticks_.end()) before += known->second;
  }
  run.cores = cores_of(ticks, before);
  return run;
}

// Adds cards that the driver reports to those that the worker has recorded.
void Gatherer::look_at_gpus(Frame& frame, bool has_worker_record,
                            const std::map<pid_t, queue::Process>& processes) {
  if (gpus_ == nullptr) return;
  const devices::GpuReport& report = gpus_->look();
  std::vector<pid_t> ours;
  for (const auto& [id, tree] : trees_) ours.insert(ours.end(), tree.begin(), tree.end());
  const bool pids_known = queue::sees_our_processes(report.gpus, ours);
  for (const devices::Gpu& gpu : report.gpus) {
    if (gpu.uuid.empty()) continue;
    auto known = std::find_if(frame.devices.begin(), frame.devices.end(),
                              [&](const DeviceStatus& one) { return one.name == gpu.uuid; });
    if (known == frame.devices.end()) {
      const int64_t capacity = has_worker_record || gpu.mig ? 0 : queue::card_capacity(gpu);
      known = frame.devices.insert(known, {gpu.uuid, capacity, 0, std::nullopt, 0, 0, 0});
    }
    fill_card(gpu, pids_known, trees_, processes, frame.runs, *known);
  }
}

Frame Gatherer::take() {
  Frame frame;
  frame.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  of_runs_.clear();
  trees_.clear();
  elapsed_ = taken_ > 0 ? frame.time - taken_ : 0;
  taken_ = frame.time;
  frame.worker = queue::has_worker(store_.folder());
  frame.paused = store_.paused();
  frame.draining = store_.draining();
  frame.memory = total_memory();
  frame.available = free_();
  frame.swap = swap_memory();
  double load = 0;
  if (getloadavg(&load, 1) == 1) frame.load = load;
  frame.pressure = pressure_now();

  const std::map<pid_t, queue::Process> processes = queue::all_processes();
  const std::optional<queue::Machine> record = queue::recorded_machine(store_.folder());
  const queue::Machine machine = record.value_or(
      queue::Machine{frame.memory, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), {}, "cpu:0"});
  host_name_ = machine.host;
  DeviceStatus host{machine.host, machine.host_bytes, 0, 0, 0, machine.threads, 0};
  for (const queue::MachineCard& card : machine.cards) {
    frame.devices.push_back({card.name, card.bytes, 0, std::nullopt, 0, 0, 0});
    if (frame.worker) frame.devices.back().problem = card.problem;  // as the worker sees it
  }
  for (const queue::Entry& entry : store_.open_entries_and_last(kShownOver)) {
    frame.runs.push_back(look_at_run(entry, processes));
    const RunStatus& run = frame.runs.back();
    if (entry.state != State::running) continue;
    host.reserved += run.reserved;
    host.threads_reserved += run.threads;
    *host.used += run.used.value_or(0);
    ++host.runs;
    for (DeviceStatus& card : frame.devices) {
      if (std::find(run.devices.begin(), run.devices.end(), card.name) == run.devices.end()) continue;
      card.reserved += run.device_bytes;
      ++card.runs;
    }
  }
  look_at_gpus(frame, record.has_value(), processes);
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
