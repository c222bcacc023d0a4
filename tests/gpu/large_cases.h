// Attention and GLA at the shapes of a bench: walks over many chunks, several waves of blocks. The reference
// would take minutes there, so what tensor cores compute of 16-bit values is compared with what the plain
// kernels of f32 compute of the same values, on the card itself.
#pragma once

#include "device/description.h"
#include "outcome.h"
#include "runtime/device.h"

namespace plimsoll::gpu_check {

// `small`: the same at sizes that an emulated card computes in seconds. `wrong`: the case whose 16-bit
// results get one value turned; the check must notice.
bool check_large_cases(Device& device, const CardFacts& card, bool small, const std::string& wrong,
                       const Tell& tell);

}  // namespace plimsoll::gpu_check
