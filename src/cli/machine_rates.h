// Measures rates of a machine that has not been calibrated, before the first plan.
#pragma once

#include "ops/cpu_kernel.h"
#include "recipe/recipe.h"

namespace plimsoll {

// If the cache has no rates for these settings, measures a product and a copy for half a second and stores
// the rates there. It does so in a process of its own, so that no byte of this process's plan depends on it,
// and reports it on standard error unless `quiet`. If the measurement fails, a busy machine included, or a
// stated budget is less than it takes, the shipped rates stay, whose note says that times are guessed.
void probe_where_unknown(const CpuSettings& cpu, const MemoryLimit& budget, bool quiet);

}  // namespace plimsoll
