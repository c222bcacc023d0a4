#include "fleet/slurm/policy.h"

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "device/catalogue.h"

namespace plimsoll::slurm {

using queue::Exit;

namespace {

constexpr double kRecordSeconds = 10;   // a record may take to come over a shared file system
constexpr double kWarnedSeconds = 180;  // Slurm warns two minutes early, and may do so a minute before

Exit signaled(int number) {
  Exit exit;
  exit.signal = number;
  return exit;
}

// An end by the supervisor's record, and Slurm's word for it.
Ended with_word(const Exit& record, const std::string& word, double limit) {
  Ended end{{queue::Life::ended, 0, record}, false};
  Exit& exit = *end.state.exit;
  if (exit.code == 0) return end;
  if (word == "OUT_OF_MEMORY") exit.kernel_killed = true;
  end.canceled_there = word == "CANCELLED" && exit.canceled;
  const bool late = exit.canceled && limit > 0 && exit.seconds > limit - kWarnedSeconds;
  exit.timed_out = word == "TIMEOUT" || word == "DEADLINE" || (late && !end.canceled_there);
  if (exit.canceled && (word == "PREEMPTED" || word == "NODE_FAIL"))
    end.state = {queue::Life::supervisor_lost, 0, std::nullopt};
  return end;
}

Ended without_record(const std::string& word, bool begun) {
  Ended end{{queue::Life::ended, 0, std::nullopt}, false};
  if (word == "OUT_OF_MEMORY") {
    end.state = ended_by_memory();
  } else if (word == "CANCELLED") {
    end.canceled_there = true;
    end.state.exit = signaled(SIGTERM);
    end.state.exit->canceled = true;
  } else if (word == "TIMEOUT" || word == "DEADLINE") {
    end.state.exit = signaled(SIGTERM);
    end.state.exit->timed_out = true;
  } else if (!begun && (word == "FAILED" || word == "COMPLETED")) {
    end.state.exit = Exit{};
    end.state.exit->problem =
        "Slurm's job ended before the command began: the queue's folder, the program and the "
        "folder where the entry was added must be where its node sees them";
  } else {
    end.state.life = queue::Life::supervisor_lost;
  }
  return end;
}

}  // namespace

queue::AttemptState ended_by_memory() {
  queue::AttemptState state{queue::Life::ended, 0, signaled(SIGKILL)};
  state.exit->kernel_killed = true;
  return state;
}

queue::Need need_on_node(const queue::Need& need, int processes) {
  queue::Need here = need;
  here.host_bytes = host_bytes_of(need, processes);
  here.threads = std::max(1, need.threads / need.processes) * processes;
  here.processes = processes;
  if (need.devices > 0) here.devices = processes;
  return here;
}

std::optional<Spread> spread_of(const queue::Machine& node, int nodes, const queue::Need& need) {
  if (need.processes <= 1 || never_fits(node, need).empty()) return std::nullopt;
  for (int on_node = need.processes - 1; on_node > 0; --on_node) {
    if (!never_fits(node, need_on_node(need, on_node)).empty()) continue;
    const int wanted = (need.processes + on_node - 1) / on_node;
    if (wanted > nodes) return std::nullopt;
    return Spread{wanted, (need.processes + wanted - 1) / wanted};
  }
  return std::nullopt;
}

double time_limit(double predicted_seconds, double stated_limit) {
  const double wanted = predicted_seconds > 0 ? std::max(900.0, 1.5 * predicted_seconds + 300) : stated_limit;
  return stated_limit > 0 ? std::min(wanted, stated_limit) : wanted;
}

int64_t job_memory(int64_t host_bytes) { return host_bytes > 0 ? host_bytes + kSupervisorBytes : 0; }

GpuType read_type(const std::string& name, int64_t bytes) {
  GpuType type{name, bytes};
  try {
    type.model = full_name(find_card_of(name, bytes, "--device"));
  } catch (const UsageError&) {  // a name of the cluster's own
  }
  return type;
}

std::vector<GpuType> types_of_nodes(std::vector<GpuType> stated, const std::vector<std::string>& of_nodes) {
  const auto is_there = [&](const GpuType& type) {
    return std::find(of_nodes.begin(), of_nodes.end(), type.name) != of_nodes.end();
  };
  const auto unknown = std::find_if_not(stated.begin(), stated.end(), is_there);
  if (unknown == stated.end()) return stated;
  const std::string option = formatted("--device {}={}B: ", unknown->name, unknown->bytes);
  if (of_nodes.empty())
    throw UsageError(option +
                     "Slurm's nodes have no GPUs; without --device, runs that need none are submitted");
  std::vector<std::string> types = of_nodes;
  std::erase(types, "");
  if (!types.empty())
    throw UsageError(formatted(
        "{}Slurm's nodes have no GPUs of this type; their types are {}: name those, each with its memory (--device {}={}B)",
        option, join(types, ", "), types.front(), unknown->bytes));
  if (stated.size() > 1)
    throw UsageError(formatted(
        "{}the GPUs of Slurm's nodes have no types to choose from: state one size that all of them have (--device gpu={}B)",
        option, stated.front().bytes));
  stated.front().name.clear();
  return stated;
}

std::optional<std::string> gpu_type(const std::vector<GpuType>& types, const queue::Need& need) {
  if (types.empty()) return "";
  for (const GpuType& one : types)
    if (one.bytes >= need.device_bytes && is_for(need, {one.name, one.bytes, 0, "", one.model}))
      return one.name;
  return std::nullopt;
}

queue::Need need_of_types(const std::vector<GpuType>& types, const queue::Need& own,
                          const std::vector<queue::SmallerPlan>& plans) {
  if (own.card.empty() || gpu_type(types, own)) return own;
  for (const queue::SmallerPlan& plan : plans)
    if (const queue::Need need = with_plan(own, plan); gpu_type(types, need)) return need;
  return own;
}

std::optional<Ended> ended(const std::optional<Job>& job, const std::optional<Exit>& exit, bool begun,
                           double limit, double seconds_over) {
  const bool over = !job || phase_of(job->state) == Phase::over;
  const std::string word = job ? job->state : "";
  if (exit && (over || exit->code == 0)) return with_word(*exit, word, limit);
  const bool never_ran = word == "CANCELLED" && job->node.empty();
  if (!over || (seconds_over < kRecordSeconds && !never_ran)) return std::nullopt;
  return without_record(word, begun);
}

}  // namespace plimsoll::slurm
