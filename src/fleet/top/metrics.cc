#include "fleet/top/metrics.h"

#include <cstdio>
#include <map>
#include <utility>

#include "base/format.h"
#include "base/printable.h"

namespace plimsoll::top {
namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;

std::string label_text(const std::string& value) {
  std::string text;
  for (const char c : printable(value)) {
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  return text;
}

// One metric with all its values; prints nothing without values.
class Metric {
 public:
  Metric(const char* name, const char* help) : name_(name), help_(help) {}
  void add(const Labels& labels, double value) {
    char number[40];
    std::snprintf(number, sizeof number, "%.17g", value);
    lines_ += "plimsoll_" + std::string(name_);
    for (size_t i = 0; i < labels.size(); ++i)
      lines_ += formatted("{}{}=\"{}\"", i == 0 ? "{" : ",", labels[i].first, label_text(labels[i].second));
    lines_ += formatted("{}{}\n", labels.empty() ? " " : "} ", number);
  }
  template <class Value>
  void add(const Labels& labels, const std::optional<Value>& value) {
    if (value) add(labels, static_cast<double>(*value));
  }
  [[nodiscard]] std::string text() const {
    if (lines_.empty()) return "";
    const std::string name = "plimsoll_" + std::string(name_);
    return formatted("# HELP {} {}\n# TYPE {} gauge\n{}", name, help_, name, lines_);
  }

 private:
  const char* name_;
  const char* help_;
  std::string lines_;
};

std::string host_metrics(const Frame& frame) {
  Metric worker("worker", "Whether a worker runs."), memory("host_memory_bytes", "Memory of the host."),
      available("host_available_bytes", "Memory that programs could still have."),
      swap("host_swap_used_bytes", "Swap of the host in use."),
      pressure("host_pressure_percent",
               "Share of the last ten seconds in which something waited (PSI, some).");
  worker.add({}, frame.worker ? 1.0 : 0.0);
  memory.add({}, static_cast<double>(frame.memory));
  available.add({}, static_cast<double>(frame.available));
  swap.add({}, static_cast<double>(frame.swap.used));
  for (const auto& [kind, share] : frame.pressure) pressure.add({{"resource", kind}}, share);
  return worker.text() + memory.text() + available.text() + swap.text() + pressure.text();
}

std::string device_metrics(const Frame& frame) {
  Metric capacity("device_capacity_bytes", "What all runs together may take."),
      reserved("device_reserved_bytes", "What runs are promised."),
      used("device_used_bytes", "What runs take now."), runs("device_runs", "Runs that are there."),
      memory("device_memory_bytes", "Memory of a GPU."),
      in_use("device_memory_used_bytes", "What all there is on a card takes of it."),
      others("device_others_bytes", "GPU memory of processes that are no runs."),
      answers("device_answers", "Whether a card answers.");
  for (const DeviceStatus& one : frame.devices) {
    const Labels labels = {{"device", one.name}};
    capacity.add(labels, static_cast<double>(one.capacity));
    reserved.add(labels, static_cast<double>(one.reserved));
    used.add(labels, one.used);
    runs.add(labels, static_cast<double>(one.runs));
    memory.add(labels, one.memory);
    in_use.add(labels, one.memory_used);
    others.add(labels, one.others);
    if (one.memory || !one.problem.empty()) answers.add(labels, one.problem.empty() ? 1.0 : 0.0);
  }
  std::string text;
  for (const Metric* one : {&capacity, &reserved, &used, &runs, &memory, &in_use, &others, &answers})
    text += one->text();
  return text;
}

std::string run_metrics(const Frame& frame) {
  Metric states("runs", "Runs that are open or ended last, by state."),
      reserved("run_reserved_bytes", "Memory of the host that a run is promised."),
      used("run_used_bytes", "Memory of the host that a run takes now (PSS)."),
      on_card("run_device_used_bytes", "The most that a run takes now of any of its cards."),
      growth("run_growth_bytes_per_second", "Where memory grows without end."),
      cores("run_cores", "Cores that a run keeps busy."),
      step("run_step", "Steps of a training that are done."), steps("run_steps", "Steps of a training."),
      seconds("run_step_seconds", "Seconds of a step, median of the last ones."),
      loss("run_loss", "Loss of the last step."),
      ranks("run_ranks", "Processes that share each step of a training."),
      largest("run_largest_process_bytes", "Memory of the host that the largest process of a run takes now."),
      waiting("run_waiting_share", "Share of the last steps in which a rank waited for others.");
  std::map<std::string, int> count;
  for (const RunStatus& one : frame.runs) {
    if (!one.state.empty()) ++count[one.state];
    if (one.state != "running") continue;
    const Labels labels = {{"id", std::to_string(one.id)}, {"name", one.name}};
    reserved.add(labels, static_cast<double>(one.reserved));
    used.add(labels, one.used);
    on_card.add(labels, one.used_on_card);
    growth.add(labels, one.growth);
    cores.add(labels, one.cores);
    largest.add(labels, one.processes.largest);
    if (!one.progress) continue;
    step.add(labels, static_cast<double>(one.progress->step));
    if (one.progress->steps > 0) steps.add(labels, static_cast<double>(one.progress->steps));
    seconds.add(labels, one.progress->step_seconds);
    loss.add(labels, one.progress->loss);
    ranks.add(labels, static_cast<double>(one.progress->ranks));
    waiting.add(labels, one.progress->waiting_share);
  }
  for (const auto& [state, number] : count) states.add({{"state", state}}, static_cast<double>(number));
  std::string text;
  for (const Metric* one : {&states, &reserved, &used, &on_card, &growth, &cores, &step, &steps, &seconds,
                            &loss, &ranks, &largest, &waiting})
    text += one->text();
  return text;
}

}  // namespace

std::string metrics_text(const Frame& frame) {
  return host_metrics(frame) + device_metrics(frame) + run_metrics(frame);
}

}  // namespace plimsoll::top
