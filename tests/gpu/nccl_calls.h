// Checks of all that ranks need of the card and of NCCL, where one is found: with one rank, which sends to itself, and of sums
// over ranks on the card, which have to have the host's bits.
#pragma once

#include "outcome.h"
#include "runtime/device.h"

namespace plimsoll::gpu_check {

void check_rank_sums(Device& device, const Tell& tell);
// Without a library the outcome's figures have the reason, as `skipped`. The emulated card has one where PLIMSOLL_NCCL names
// a stand-in.
void check_nccl(Device& device, bool emulated, const Tell& tell);

}  // namespace plimsoll::gpu_check
