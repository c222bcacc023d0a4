// The NVIDIA GPUs of this machine, as their driver reports them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fleet/devices/gpu.h"

namespace plimsoll {

struct OwnCards {
  std::vector<devices::Gpu> gpus;  // that this process may use, in the order of CUDA_VISIBLE_DEVICES
  bool is_of_rank = false;         // they were others, of which this process keeps one
  std::string problem;             // a driver is here, and why none of its cards can be asked
  // The one whose UUID it is; nullptr: there is none.
  [[nodiscard]] const devices::Gpu* find(const std::string& uuid) const;
};

// Asked once, by a process of its own. Without a driver, or where CUDA_VISIBLE_DEVICES hides all cards, there
// are none, and nothing is started to learn that.
const OwnCards& own_cards();

// From here on this process has this one alone, as CUDA's first. Called before CUDA is.
void keep_only_card(const std::string& uuid);

int64_t free_bytes(const devices::Gpu& gpu);

// PLIMSOLL_EMULATED_CARDS=1, for tests: the emulated card computes instead of each card that the driver tells
// of.
bool emulates_cards();

}  // namespace plimsoll
