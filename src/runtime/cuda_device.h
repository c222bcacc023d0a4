// Kernels of src/ops/*_gpu.cu on a card of NVIDIA's. Never run on a card so far.
#pragma once

#include <memory>
#include <string>

#include "device/description.h"
#include "runtime/device.h"

namespace plimsoll {

// The first card that the driver shows. `planned`: what grids and workspaces were planned by. Throws
// UsageError where there is no such card, or one that lacks what was planned.
std::unique_ptr<Device> open_cuda_device(const CardFacts& planned);

// What the bits of a run on it are promised within.
std::string cuda_kernels_text();

}  // namespace plimsoll
