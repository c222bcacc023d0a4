// Adapters that are saved otherwise than they are held. Those that begin with a part of the weight (PiSSA,
// OLoRA): the part is taken out of the base in memory; what is saved is a plain adapter of twice the rank,
// [A; -A0] and [B, B0], which gives the same outputs over the base as its folder has it. And the A of an
// embedding's adapter, which is saved transposed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/cpu_kernel.h"
#include "passes/lora.h"
#include "weights/persistent_state.h"

namespace plimsoll {

// The initial value of an adapter's weight; nullptr where it began at random.
const TableRow* start_of(const PersistentState& state, const TableRow& adapter);

// Finds the parts of all weights that are loaded, and begins the adapters with them. take_out_starts() is next, once no
// process reads the weights as they were.
void start_adapters(const PersistentState& state, const LoraOptions& lora, const CpuSettings& cpu,
                    uint64_t seed);
// Takes out of the weights, as they were loaded, what the adapters begin with.
void take_out_starts(const PersistentState& state, const LoraOptions& lora);

// Returns true for an adapter's weight that is saved with its start, or transposed; the others convert its
// tensor to that of a folder and back.
bool is_saved_otherwise(const PersistentState& state, const TableRow& adapter);
Shape saved_shape(const PersistentState& state, const TableRow& adapter);
std::vector<float> values_to_save(const PersistentState& state, const TableRow& adapter);
void store_saved(const PersistentState& state, const TableRow& adapter, std::span<const float> values);

// Transposes rows of `columns` columns.
std::vector<float> transposed(std::span<const float> values, int64_t columns);

}  // namespace plimsoll
