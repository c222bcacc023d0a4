// What a process needs of the host's memory beside the arena and its programs. One formula: training,
// evaluation, generation, scoring and inspection have the same parts.
#pragma once

#include "prepare/asked_device.h"
#include "prepare/setup.h"

namespace plimsoll {

// Of training. Data counts as far as the recipe names it.
HostNeeds host_needs(const Recipe& recipe, const Experiment& experiment, const CpuSettings& cpu,
                     const DataSetup* data);

// Of a model that answers or is evaluated: threads and libraries, the staging of loading, and what a card
// wants for programs that are laid out so. What is asked of the model comes on top.
HostNeeds answering_needs(const AskedDevice& device, const ArenaLayout& layout);

}  // namespace plimsoll
