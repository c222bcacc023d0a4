// Looks up the GPU of a recipe: the one that memory.gpu names, or the one that device: cuda computes on.
#pragma once

#include <optional>
#include <string>

#include "device/catalogue.h"
#include "gpu/cuda_card.h"
#include "ops/cpu_kernel.h"
#include "recipe/recipe.h"

namespace plimsoll {

// The card of this machine, for device: cuda.
struct CardHere {
  gpu::CudaFacts facts;
  int64_t free_bytes = 0;  // beside a context of ours, and code that a run will load: what an arena may take
};
// Asked once, by a process of its own: a copy of one that has started the driver cannot use it, and plans are
// made by a copy. `which`: as gpu::cuda_facts() reads it. Throws UsageError where there is no such card.
const CardHere& card_here(const std::string& which);
// Reads the driver's own facts of it, which takes no memory of the card. Throws as card_here().
gpu::CudaFacts card_facts(const std::string& which);
// The one that was asked for; nullptr: none was.
const CardHere* known_card_here();
// The kernels that compute on the device, in words: what they are decides over the bits of a run.
std::string kernels_of(DeviceChoice device, const CpuSettings& cpu);
// As messages name it: "NVIDIA H200".
std::string card_words(const gpu::CudaFacts& facts);

// The card of the recipe, with what was measured of it. memory.gpu must name one.
struct PlannedCard {
  Card card;
  std::optional<MeasuredCard> measured;
  std::string note;       // why a measurement was not used; empty: there is none, or it was
  bool emulated = false;  // tests: the emulated card computes in its place

  [[nodiscard]] const MeasuredCard* known() const { return measured ? &*measured : nullptr; }
  // "RTX 3060 12GB".
  [[nodiscard]] std::string words() const { return full_name(card) + (emulated ? " (emulated)" : ""); }
};
PlannedCard planned_card(const Recipe& recipe);

// Keeps a run's measurements of a GPU for the next plan. Returns the reason where it cannot; else an empty
// text.
std::string keep_measured(const MeasuredCard& card);

}  // namespace plimsoll
