#include "fleet/queue/packing/card_capacity.h"

#include <algorithm>
#include <filesystem>

namespace plimsoll::queue {
namespace {

bool holds(const std::vector<pid_t>& processes, int64_t pid) {
  return std::find(processes.begin(), processes.end(), pid) != processes.end();
}

// The kernel gives its first namespace this number, and no other one.
bool has_first_pids() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/ns/pid", none) == "pid:[4026531836]";
}

// Other queues' promises may be any number: sums end at what no card has.
int64_t add(int64_t sum, int64_t bytes) { return std::min(int64_t{1} << 50, sum + bytes); }

int64_t sum_of(const std::vector<PromisedOnCard>& runs) {
  int64_t sum = 0;
  for (const PromisedOnCard& one : runs) sum = add(sum, one.bytes);
  return sum;
}

}  // namespace

int64_t card_capacity(const devices::Gpu& gpu, double headroom) {
  return static_cast<int64_t>(static_cast<double>(gpu.total) * (1 - headroom));
}

std::optional<int64_t> used_on(const devices::Gpu& gpu, const std::vector<pid_t>& processes,
                               bool pids_known) {
  if (!gpu.processes_known || !pids_known || !gpu.problem.empty()) return std::nullopt;
  int64_t sum = 0;
  for (const devices::GpuProcess& one : gpu.processes) {
    if (!holds(processes, one.pid)) continue;
    if (!one.bytes) return std::nullopt;
    sum += *one.bytes;
  }
  return sum;
}

bool sees_our_processes(const std::vector<devices::Gpu>& gpus, const std::vector<pid_t>& ours) {
  static const bool first = has_first_pids();
  if (first) return true;
  for (const devices::Gpu& gpu : gpus)
    for (const devices::GpuProcess& one : gpu.processes)
      if (holds(ours, one.pid)) return true;
  return false;
}

CardShare share_of(const devices::Gpu& gpu, int64_t limit, int64_t ceiling, const CardRuns& runs,
                   bool pids_known) {
  CardShare share;
  if (!gpu.problem.empty() || gpu.mig) return share;
  share.measured = true;
  int64_t of_runs = 0, beyond = 0, of_other_queues = 0;
  for (const PromisedOnCard& run : runs.own) {
    const auto used = used_on(gpu, *run.processes, pids_known);
    share.measured &= used.has_value();
    of_runs = add(of_runs, used.value_or(0));
    beyond = add(beyond, std::max<int64_t>(0, used.value_or(0) - run.bytes));
  }
  for (const PromisedOnCard& run : runs.of_other_queues) {
    const auto used = used_on(gpu, *run.processes, pids_known);
    share.measured &= used.has_value();
    of_runs = add(of_runs, used.value_or(0));
    of_other_queues = add(of_other_queues, std::max(run.bytes, used.value_or(0)));
  }
  share.others = std::max<int64_t>(0, gpu.used - of_runs);
  if (!share.measured) {
    of_other_queues = sum_of(runs.of_other_queues);
    beyond = 0;
    const int64_t reserved = add(sum_of(runs.own), of_other_queues);
    share.others = std::max(std::min(runs.idle_bytes.value_or(0), gpu.used), gpu.used - reserved);
  }
  share.free_bytes = std::max<int64_t>(0, std::min(limit, ceiling - share.others) - beyond - of_other_queues);
  return share;
}

}  // namespace plimsoll::queue
