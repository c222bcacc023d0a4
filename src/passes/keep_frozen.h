// The blocks below all that trains give a row the same in every epoch: a program of their own says it once,
// and the micro-step begins with what it said.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/graph.h"

namespace plimsoll {

// Where the run is sooner over by prediction, always, or never.
enum class KeepFrozen : uint8_t { automatic, on, off };

inline constexpr const char* kFrozenProgram = "frozen";
// [T, H] of the first token axis: what leaves the frozen blocks. An input of the micro-step, the last output
// of the frozen program.
inline constexpr const char* kKeptTensor = "kept_hidden";

// What its rows are kept in begins with a line of so many bytes and ends with a record of no row.
inline constexpr int64_t kKeptLineBytes = 64;

// Whether a forward pass with all that trains begins with whole blocks that nothing trains below, draws
// nothing at random, and hands on one tensor of tokens.
bool has_frozen_blocks(const Graph& forward);

// The forward pass from there on. Weights and inputs all stay: the run's programs share their homes.
Graph begin_at_kept(const Graph& forward);
// The forward pass up to there.
Graph frozen_blocks(const Graph& forward);

}  // namespace plimsoll
