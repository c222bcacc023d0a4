// The memory that runs may have on a GPU which others use too: pure functions of what the driver reports.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fleet/devices/gpu.h"
#include "fleet/queue/packing/machine_ledger.h"

namespace plimsoll::queue {

// The share of a GPU's memory that is not given out, where its size was not stated. Memory that a process has
// in addition to its tensors, and what allocators leave in between, is in what runs take; this is for what
// they do not know of.
inline constexpr double kCardHeadroom = 0.05;

// Bytes on a GPU that all runs together may have: without others.
int64_t card_capacity(const devices::Gpu& gpu, double headroom = kCardHeadroom);

// The bytes that these processes have on a card; nullopt where the driver does not report them. `pids_known`:
// the driver lists processes by the numbers that they have here, so that a process which is not listed has
// nothing.
std::optional<int64_t> used_on(const devices::Gpu& gpu, const std::vector<pid_t>& processes, bool pids_known);

// The driver numbers processes as they are numbered here: not in a container with numbers of its own, unless
// the driver is seen to translate them.
bool sees_our_processes(const std::vector<devices::Gpu>& gpus, const std::vector<pid_t>& ours);

// Everybody who was promised something on a card.
struct CardRuns {
  std::vector<PromisedOnCard> own, of_other_queues;
  std::optional<int64_t> idle_bytes;  // in use on it when no run was there last
};

struct CardShare {
  int64_t free_bytes = 0;  // what this queue's runs may reserve, those that are there included
  int64_t others = 0;      // in use by who is of no queue
  bool measured = false;   // who uses what is known
};

// `limit`: the most that this queue gives out; `ceiling`: the most that any queue may have. Each run counts
// as what it reserved or as what it has, where that is more. Where the driver does not report who has what,
// all use beyond the reservations counts as that of others, and at least what was in use before runs came, as
// far as it can still be.
CardShare share_of(const devices::Gpu& gpu, int64_t limit, int64_t ceiling, const CardRuns& runs,
                   bool pids_known);

}  // namespace plimsoll::queue
