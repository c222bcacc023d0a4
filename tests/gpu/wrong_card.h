// Emulated cards that do one thing wrong, so that the check of a card can be seen to notice it.
#pragma once

#include <memory>
#include <string>

#include "gpu/emulated_card.h"

namespace plimsoll::gpu_check {

// "": nothing. Throws UsageError for a word that names no fault.
std::unique_ptr<gpu::EmulatedCard> open_wrong_card(const std::string& wrong);

}  // namespace plimsoll::gpu_check
