// Rates of a machine that nobody calibrated, before the first plan.
#pragma once

#include "ops/cpu_kernel.h"
#include "recipe/recipe.h"

namespace plimsoll {

// Where the cache knows no rates of these settings, measures a product and a copy for half a second, in a
// process of its own so that no byte of this one's plan depends on it, and keeps them there; says so on
// standard error unless `quiet`. What goes wrong, a busy machine included, leaves the shipped rates, whose
// note says that times are guessed; so does a stated budget that is less than the measurement takes.
void probe_where_unknown(const CpuSettings& cpu, const MemoryLimit& budget, bool quiet);

}  // namespace plimsoll
