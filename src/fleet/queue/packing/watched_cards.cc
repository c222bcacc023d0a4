#include "fleet/queue/packing/watched_cards.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/units.h"

namespace plimsoll::queue {
namespace {

using devices::Gpu;

bool has_card(const Machine& machine, const std::string& name) {
  return std::any_of(machine.cards.begin(), machine.cards.end(),
                     [&](const MachineCard& card) { return card.name == name; });
}

bool is_on(const RunOnCards& run, const std::string& card) {
  return std::find(run.cards.begin(), run.cards.end(), card) != run.cards.end();
}

}  // namespace

CardOptions card_options() {
  CardOptions options;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr)
    options.visible = visible;
  const char* order = std::getenv("CUDA_DEVICE_ORDER");
  options.by_bus = order != nullptr && std::string_view(order) == "PCI_BUS_ID";
  return options;
}

WatchedCards::WatchedCards(devices::GpuWatch& watch, CardOptions options, Machine& machine)
    : watch_(watch), options_(std::move(options)), report_(watch.first()) {
  if (options_.find && options_.visible)
    (void)devices::visible_gpus(report_.gpus, *options_.visible, options_.by_bus);
  for (MachineCard& card : machine.cards) {
    const Gpu* gpu = devices::find_gpu(report_.gpus, card.name, options_.by_bus);
    if (gpu == nullptr || gpu->uuid == card.name) continue;
    if (has_card(machine, gpu->uuid))
      throw UsageError(formatted("--device: '{}' is {}, which is named too", card.name, gpu->uuid));
    card.name = gpu->uuid;
  }
  for (MachineCard& card : machine.cards) name_model(card);
}

std::optional<std::vector<std::string>> WatchedCards::take(Machine& machine) {
  const devices::GpuReport& report = watch_.look();
  if (watch_.answers() == seen_) return std::nullopt;
  seen_ = watch_.answers();
  report_ = report;
  std::vector<std::string> lines;
  if (options_.find) add_found(machine, lines);
  for (MachineCard& card : machine.cards) {
    const Gpu* gpu = known(card.name);
    if (gpu == nullptr) continue;
    name_model(card);
    const std::string problem = gpu->mig ? "is cut into MIG instances" : printable(gpu->problem);
    if (problem == card.problem) continue;
    lines.push_back(formatted("{} {}", devices::short_name(card.name),
                              problem.empty() ? "answers again" : problem + "; nothing new starts there"));
    card.problem = problem;
  }
  return lines;
}

void WatchedCards::add_found(Machine& machine, std::vector<std::string>& lines) {
  const auto tell_once = [&](const std::string& name, const std::string& text) {
    if (std::exchange(told_[name], text) != text && !text.empty()) lines.push_back(text);
  };
  std::vector<std::string> names;
  for (const Gpu& gpu : report_.gpus) names.push_back(gpu.uuid);
  if (options_.visible) try {
      devices::VisibleGpus visible = devices::visible_gpus(report_.gpus, *options_.visible, options_.by_bus);
      names = std::move(visible.uuids);
      tell_once("visible", report_.gpus.empty() ? "" : visible.note);
    } catch (const UsageError& error) {  // cards came that differ from those that were there at the start
      names.clear();
      tell_once("visible", error.what());
    }
  for (const std::string& name : names) {
    const Gpu* gpu = name.empty() ? nullptr : known(name);
    if (gpu == nullptr || has_card(machine, name)) continue;
    if (gpu->mig) {
      tell_once(name, devices::short_name(name) + " is cut into MIG instances; the queue does not use it");
    } else if (gpu->total > 0) {
      add_card(machine, *gpu, lines);
    }
  }
}

void WatchedCards::add_card(Machine& machine, const Gpu& gpu, std::vector<std::string>& lines) {
  const size_t place = std::min(machine.cards.size(), options_.headroom.size() - 1);
  machine.cards.push_back(
      {gpu.uuid, card_capacity(gpu, options_.headroom[place]), 0, "", devices::model_of(gpu)});
  lines.push_back(formatted("{} {}: {} of {}{}", devices::short_name(gpu.uuid), printable(gpu.name),
                            format_bytes(machine.cards.back().bytes), format_bytes(gpu.total),
                            gpu.used > 0 ? formatted(", {} in use", format_bytes(gpu.used)) : ""));
}

void WatchedCards::name_model(MachineCard& card) const {
  const Gpu* gpu = known(card.name);
  if (card.model.empty() && gpu != nullptr && gpu->total > 0) card.model = devices::model_of(*gpu);
}

const Gpu* WatchedCards::known(const std::string& name) const {
  const auto found = std::find_if(report_.gpus.begin(), report_.gpus.end(),
                                  [&](const Gpu& gpu) { return gpu.uuid == name; });
  return found == report_.gpus.end() ? nullptr : &*found;
}

void WatchedCards::name_whole(std::vector<std::string>& cards) const {
  for (std::string& card : cards)
    if (const Gpu* gpu = devices::find_gpu(report_.gpus, card, options_.by_bus)) card = gpu->uuid;
}

bool WatchedCards::more_may_come() const {
  if (report_.installed && !report_.problem.empty()) return true;
  return std::any_of(report_.gpus.begin(), report_.gpus.end(),
                     [](const Gpu& gpu) { return gpu.uuid.empty() || gpu.total == 0; });
}

bool WatchedCards::pids_known(const std::vector<RunOnCards>& own) const {
  std::vector<pid_t> ours;
  for (const RunOnCards& run : own)
    ours.insert(ours.end(), run.promised.processes->begin(), run.promised.processes->end());
  return sees_our_processes(report_.gpus, ours);
}

CardRuns WatchedCards::runs_on(const std::string& card, const std::vector<RunOnCards>& own,
                               const PromisedByOthers& others) const {
  CardRuns runs;
  for (const RunOnCards& run : own)
    if (is_on(run, card)) runs.own.push_back(run.promised);
  if (const auto found = others.cards.find(card); found != others.cards.end())
    runs.of_other_queues = found->second;
  if (const auto idle = idle_bytes_.find(card); idle != idle_bytes_.end()) runs.idle_bytes = idle->second;
  return runs;
}

Machine WatchedCards::with_room(Machine machine, const std::vector<RunOnCards>& own,
                                const PromisedByOthers& others) {
  const bool pids = pids_known(own);
  for (MachineCard& card : machine.cards) {
    const CardRuns runs = runs_on(card.name, own, others);
    if (const Gpu* gpu = known(card.name)) {
      if (gpu->problem.empty() && runs.own.empty() && runs.of_other_queues.empty())
        idle_bytes_[card.name] = gpu->used;
      // A stated size is meant: no headroom is taken off it, but what others use of the card is.
      const int64_t ceiling = options_.find ? card.bytes : gpu->total;
      card.bytes = share_of(*gpu, card.bytes, ceiling, runs, pids).free_bytes;
    } else {
      for (const PromisedOnCard& run : runs.of_other_queues)
        card.bytes = std::max<int64_t>(0, card.bytes - run.bytes);
    }
    const auto of_others = static_cast<int>(runs.of_other_queues.size());
    if (card.max_runs == 0 || of_others == 0) continue;
    if (of_others >= card.max_runs) card.bytes = 0;  // as many as it may have
    card.max_runs = std::max(1, card.max_runs - of_others);
  }
  return machine;
}

std::optional<int64_t> WatchedCards::most_on_a_card(const RunOnCards& run) const {
  std::optional<int64_t> most;
  const bool pids = pids_known({run});
  for (const Gpu& gpu : report_.gpus) {
    if (!is_on(run, gpu.uuid)) continue;
    const auto used = used_on(gpu, *run.promised.processes, pids);
    if (used) most = std::max(most.value_or(0), *used);
  }
  return most;
}

}  // namespace plimsoll::queue
