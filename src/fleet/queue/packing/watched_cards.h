// The GPUs of a worker: found by what the driver reports, or stated and recognised in it. Memory that others
// use is taken off, and a GPU that stopped answering takes nothing new.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fleet/devices/watch.h"
#include "fleet/queue/packing/card_capacity.h"
#include "fleet/queue/packing/packing.h"

namespace plimsoll::queue {

struct CardOptions {
  bool find = true;                    // cards are those of the driver; else those of the machine, as stated
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES of the worker
  bool by_bus = false;                 // CUDA_DEVICE_ORDER=PCI_BUS_ID
  // Shares that are not given out, in the order of the cards that are found; of one for all. The last is
  // that of cards that come later.
  std::vector<double> headroom = {kCardHeadroom};
};

// A run of this queue on cards.
struct RunOnCards {
  std::vector<std::string> cards;
  PromisedOnCard promised;
};

class WatchedCards {
 public:
  // `watch` outlives it. `machine`'s cards are stated: those that the driver knows get their UUIDs as names.
  // Waits for the driver's first answer. Throws UsageError where `visible` cannot be understood, or a card is
  // stated twice.
  WatchedCards(devices::GpuWatch& watch, CardOptions options, Machine& machine);

  // Takes in the driver's reports since the last call: adds cards to the machine (none ever leaves it, their
  // order stays) and writes down what is wrong with them. Returns what changed, for people; nullopt where the
  // driver reported nothing new.
  std::optional<std::vector<std::string>> take(Machine& machine);
  // The machine with what this queue's runs may reserve now, those that are there included. Remembers what is
  // in use on cards without runs, for the time when runs are there.
  [[nodiscard]] Machine with_room(Machine machine, const std::vector<RunOnCards>& own,
                                  const PromisedByOthers& others);
  // The most that a run has on one of its cards; nullopt: unknown.
  [[nodiscard]] std::optional<int64_t> most_on_a_card(const RunOnCards& run) const;
  // Numbers and beginnings of names, by which an earlier worker may have started a run, become whole names.
  void name_whole(std::vector<std::string>& cards) const;
  // True if some cards have not identified themselves yet.
  [[nodiscard]] bool more_may_come() const;

 private:
  void add_found(Machine& machine, std::vector<std::string>& lines);
  void add_card(Machine& machine, const devices::Gpu& gpu, std::vector<std::string>& lines);
  void name_model(MachineCard& card) const;
  [[nodiscard]] const devices::Gpu* known(const std::string& name) const;
  [[nodiscard]] bool pids_known(const std::vector<RunOnCards>& own) const;
  [[nodiscard]] CardRuns runs_on(const std::string& card, const std::vector<RunOnCards>& own,
                                 const PromisedByOthers& others) const;

  devices::GpuWatch& watch_;
  CardOptions options_;
  devices::GpuReport report_;
  int64_t seen_ = 0;  // answers
  std::map<std::string, int64_t> idle_bytes_;
  std::map<std::string, std::string> told_;  // of what the driver has and the queue does not use
};

// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER of this process.
CardOptions card_options();

}  // namespace plimsoll::queue
