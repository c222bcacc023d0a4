// Adapters that begin with a part of the weight (PiSSA, OLoRA). The part is taken out of the base in memory;
// what is saved is a plain adapter of twice the rank, [A; -A0] and [B, B0], which gives the same outputs over
// the base as its folder has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/cpu_kernel.h"
#include "passes/lora.h"
#include "train/persistent_state.h"

namespace plimsoll {

// What an adapter's weight began with; nullptr where it began at random.
const TableRow* start_of(const PersistentState& state, const TableRow& adapter);

// Finds the parts of all weights that are loaded, begins the adapters with them, and takes them out.
void start_adapters(const PersistentState& state, const LoraOptions& lora, const CpuSettings& cpu,
                    uint64_t seed);
// Takes out what load_start() read, after the weights are loaded anew.
void take_out_starts(const PersistentState& state, const LoraOptions& lora);

// An adapter's weight with its start, as one tensor of twice the rank, and back.
Shape shape_with_start(const TableRow& adapter);
std::vector<float> values_with_start(const PersistentState& state, const TableRow& adapter);
void store_with_start(const PersistentState& state, const TableRow& adapter, std::span<const float> values);

}  // namespace plimsoll
