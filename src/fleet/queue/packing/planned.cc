#include "fleet/queue/packing/planned.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/shell_word.h"
#include "base/units.h"

namespace plimsoll::queue {
namespace {

ChildAnswer run_plan(const std::string& program, const std::vector<std::string>& words, ChildErrors errors) {
  std::vector<std::string> all = {program, "plan"};
  all.insert(all.end(), words.begin(), words.end());
  return run_child(all, errors);
}

// Bytes that a process has on a named GPU in addition to its arena; the driver's own share belongs to no
// process.
int64_t outside_of(const nlohmann::json& device) {
  int64_t bytes = device.at("outside_bytes").get<int64_t>();
  for (const nlohmann::json& part : device.at("outside"))
    if (part.at("name").get_ref<const std::string&>().starts_with("driver"))
      bytes -= part.at("bytes").get<int64_t>() + part.at("uncertain_bytes").get<int64_t>();
  return bytes;
}

// The process that starts several, and mpirun: 4 and 3 MiB were measured.
int64_t launcher_bytes(const Need& need) { return need.processes > 1 ? 8 * kMiB : 0; }

// The bytes that a plan's budget bounds.
int64_t bytes_of(const Need& need) {
  return need.devices > 0 ? need.device_bytes : need.host_bytes - launcher_bytes(need);
}

}  // namespace

Planned read_plan(const std::string& text, const std::vector<std::string>& words) {
  const std::string& recipe = words.front();
  const nlohmann::json plan = read_json_text(text);
  check_internal(plan.is_object() && plan.contains("process"), "plan --json gave no plan");
  const auto several = plan.find("devices");
  const int processes = several == plan.end() ? 1 : several->at("count").get<int>();
  if (!plan.at("feasible").get<bool>()) {
    // The budget bounds each device, or the memory of all processes of a host.
    const bool on_host = processes > 1 && plan.at("device").at("kind") == "cpu";
    std::string command;
    for (const std::string& word : words) command += (command.empty() ? "" : " ") + quoted(word);
    throw DoesNotFitError(formatted(
        "does not fit   {} needs {} at least; plimsoll plan {} shows the ways", recipe,
        format_bytes_up((on_host ? processes : 1) * plan.at("smallest").at("memory_bytes").get<int64_t>()),
        command));
  }
  Planned planned;
  planned.need.processes = processes;
  // Each with its share of what the processes of the machine hold once, as its budget counts it.
  planned.need.host_bytes =
      processes * plan.at("process").at("planned_share_bytes").get<int64_t>() + launcher_bytes(planned.need);
  if (several != plan.end()) planned.need.shared_bytes = several->at("shared_bytes").get<int64_t>();
  const nlohmann::json& device = plan.at("device");
  if (const auto gpu = device.find("gpu"); gpu != device.end() && !gpu->is_null()) {
    planned.need.devices = processes;
    planned.need.device_bytes = device.at("arena_bytes").get<int64_t>() + outside_of(device);
  }
  planned.need.threads = processes * plan.at("variant").at("threads").get<int>();
  if (plan.at("run").is_object()) planned.seconds = plan.at("run").at("seconds").get<double>();
  planned.seconds_per_step = plan.at("predicted").at("seconds_per_step").get<double>();
  if (const auto smallest = plan.find("smallest"); smallest != plan.end() && smallest->is_object())
    planned.smallest_bytes =
        (planned.need.devices > 0 ? 1 : processes) * smallest->at("memory_bytes").get<int64_t>();
  return planned;
}

std::vector<SmallerPlan> read_sweep(const std::string& text, const Planned& planned) {
  constexpr double kLess = 0.95;
  const nlohmann::json sweep = read_json_text(text);
  check_internal(sweep.is_object() && sweep.contains("points"), "plan --sweep --json gave no points");
  std::vector<SmallerPlan> plans;
  const Need& need = planned.need;
  int64_t last = bytes_of(need);
  for (auto point = sweep.at("points").rbegin(); point != sweep.at("points").rend(); ++point) {
    const double slower = point->at("seconds_per_step").get<double>() / planned.seconds_per_step;
    const auto bytes = point->at("memory_bytes").get<int64_t>();
    if (static_cast<double>(bytes) > kLess * static_cast<double>(last)) continue;
    last = bytes;
    SmallerPlan plan{bytes + launcher_bytes(need), planned.seconds * slower};
    if (need.devices > 0)
      plan = {need.processes * point->at("host_bytes").get<int64_t>() + launcher_bytes(need), plan.seconds,
              need.threads, bytes, need.card};
    if (need.processes > 1) plan.processes = need.processes;
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::vector<SmallerPlan> smaller_plans(const std::string& program, const std::vector<std::string>& words,
                                       const Planned& planned) {
  const int64_t least = planned.smallest_bytes, most = bytes_of(planned.need);
  if (planned.seconds <= 0 || planned.seconds_per_step <= 0 || least <= 0 || least >= most) return {};
  std::vector<std::string> requested = words;
  requested.insert(requested.end(), {"--json", "--sweep", formatted("memory={}..{}", least, most)});
  // The program's messages on standard error were printed before.
  const ChildAnswer answer = run_plan(program, requested, ChildErrors::dropped);
  check_internal(answer.code == 0, "plan --sweep failed where plan did not");
  return read_sweep(answer.output, planned);
}

std::vector<SmallerPlan> plans_of_fewer_threads(const std::string& program,
                                                const std::vector<std::string>& words,
                                                const Planned& planned) {
  std::vector<SmallerPlan> plans = smaller_plans(program, words, planned);
  if (planned.seconds <= 0 || planned.seconds_per_step <= 0) return plans;
  const int processes = planned.need.processes, most = planned.need.threads / processes;
  int last = most;
  for (const int threads : {most / 2, most / 4, 1}) {
    if (threads < 1 || threads >= last) continue;
    last = threads;
    std::vector<std::string> requested = words;
    requested.insert(requested.end(), {"--threads", std::to_string(threads), "--json"});
    const ChildAnswer answer = run_plan(program, requested, ChildErrors::dropped);
    if (answer.code != 0) continue;  // what fits with more threads may not with fewer: it has no such plan
    Planned fewer = read_plan(answer.output, words);
    // The user may know the run's time better than its plan.
    fewer.seconds = planned.seconds * fewer.seconds_per_step / planned.seconds_per_step;
    std::vector<SmallerPlan> more = {{fewer.need.host_bytes, fewer.seconds}};
    requested.resize(words.size() + 2);
    for (const SmallerPlan& one : smaller_plans(program, requested, fewer)) more.push_back(one);
    for (SmallerPlan& one : more) {
      one.threads = processes * threads;
      if (processes > 1) one.processes = processes;
      plans.push_back(one);
    }
  }
  return worth_keeping(std::move(plans), planned.need);
}

std::vector<SmallerPlan> worth_keeping(std::vector<SmallerPlan> plans, const Need& own) {
  const auto takes = [&](const SmallerPlan& plan) { return plan.threads > 0 ? plan.threads : own.threads; };
  std::stable_sort(plans.begin(), plans.end(),
                   [](const SmallerPlan& a, const SmallerPlan& b) { return a.seconds < b.seconds; });
  std::vector<SmallerPlan> kept;
  for (const SmallerPlan& plan : plans) {
    const bool beaten = std::any_of(kept.begin(), kept.end(), [&](const SmallerPlan& faster) {
      return faster.host_bytes <= plan.host_bytes && takes(faster) <= takes(plan);
    });
    const bool is_less = plan.host_bytes < own.host_bytes || takes(plan) < own.threads;
    if (is_less && !beaten) kept.push_back(plan);
  }
  return kept;
}

void bind_to_plan(std::vector<std::string>& words, const Need& need, int on_node) {
  Need budget = need;
  budget.host_bytes -= launcher_bytes(need);
  const int64_t host_bytes = host_bytes_of(budget, on_node > 0 ? on_node : need.processes);
  const auto bind = [&](const char* name, int64_t value) {
    const auto last = std::find(words.rbegin(), words.rend(), name);
    if (last == words.rend()) {
      words.insert(words.end(), {name, std::to_string(value)});
    } else {
      *(last - 1) = std::to_string(value);  // behind it
    }
  };
  // A value of --set that stands behind such words counts.
  const auto set = [&](const std::string& key, int64_t value) {
    const auto last = std::find_if(words.rbegin(), words.rend(),
                                   [&](const std::string& word) { return word.starts_with(key + "="); });
    const std::string word = formatted("{}={}", key, value);
    if (last == words.rend()) {
      words.insert(words.end(), {"--set", word});
    } else {
      *last = word;
    }
  };
  if (need.devices > 0) {
    set("memory.device", need.device_bytes);
    set("memory.host", host_bytes);
  } else {
    bind("--memory", host_bytes);
  }
  const bool states_devices =
      std::ranges::any_of(words, [](const std::string& word) { return word.starts_with("devices="); });
  if (need.processes > 1 || states_devices) set("devices", need.processes);
  bind("--threads", std::max(1, need.threads / need.processes));  // of each
}

Planned plan_recipe(const std::string& program, const std::vector<std::string>& words) {
  const ChildAnswer answer = run_plan(program, words, ChildErrors::shown);
  if (answer.code != 0 && answer.code != static_cast<int>(ExitCode::does_not_fit)) {
    const bool known = answer.code > 0 && answer.code <= static_cast<int>(ExitCode::stopped);
    throw Error(known ? static_cast<ExitCode>(answer.code) : ExitCode::internal,
                words.front() + ": has no plan, so it is not added");
  }
  return read_plan(answer.output, words);
}

}  // namespace plimsoll::queue
