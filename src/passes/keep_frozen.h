// Splits off the blocks below everything that is trained, whose output for a row is the same in every epoch:
// a program of their own computes it once, and the micro-step begins with it.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/graph.h"

namespace plimsoll {

// A rule for keeping the outputs of frozen blocks: where the run is predicted to end sooner with it, always,
// or never.
enum class KeepFrozen : uint8_t { automatic, on, off };

inline constexpr const char* kFrozenProgram = "frozen";
// [T, H] of the first token axis: what leaves the frozen blocks. An input of the micro-step, the last output
// of the frozen program.
inline constexpr const char* kKeptTensor = "kept_hidden";

// Bytes of the first line of the file in which the rows' outputs are kept; the file ends with a record of no
// row.
inline constexpr int64_t kKeptLineBytes = 64;

// Returns true if a forward pass with all that trains begins with whole blocks that nothing trains below,
// draws nothing at random, and hands on one tensor of tokens.
bool has_frozen_blocks(const Graph& forward);

// The forward pass from there on. Weights and inputs all stay: the run's programs share their memory.
Graph begin_at_kept(const Graph& forward);
// The forward pass up to there.
Graph frozen_blocks(const Graph& forward);

}  // namespace plimsoll
