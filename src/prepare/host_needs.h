// The host memory that a process needs apart from the arena and its programs, by one formula for training,
// evaluation, generation, scoring and inspection.
#pragma once

#include <functional>
#include <vector>

#include "prepare/inference_device.h"
#include "prepare/setup.h"

namespace plimsoll {

// The needs of training. Data counts as far as the recipe names it.
HostNeeds host_needs(const Resolved& resolved, const Experiment& experiment, const CpuSettings& cpu,
                     const DataSetup* data);

// The device on which a model answers, is evaluated or is inspected, without a budget. Its host needs threads
// and libraries, the staging of loading and of quantising, what a card wants for the programs, and `more`.
Target answering_target(const InferenceDevice& device, const Experiment& experiment,
                        std::function<std::vector<Component>(const Plan&)> more = {});

}  // namespace plimsoll
