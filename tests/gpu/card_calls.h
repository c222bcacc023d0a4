// Checks of the promises of a card (gpu/card.h), one by one: memory, copies, fills, the order of its queues,
// calls on the host, and what it refuses.
#pragma once

#include <functional>
#include <memory>

#include "gpu/card.h"
#include "outcome.h"

namespace plimsoll::gpu_check {

using OpenCard = std::function<std::unique_ptr<gpu::Card>()>;

// Each on a card of its own.
void check_calls(const OpenCard& open, const Tell& tell);

}  // namespace plimsoll::gpu_check
