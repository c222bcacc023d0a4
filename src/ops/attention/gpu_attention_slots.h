// Assigns tiles of sequences to the blocks of attention. The tiles of all live sequences lie one behind
// another, so that a launch has exactly one block for each of them: a packed row has many short sequences,
// and a grid of (longest sequence) x (planned sequences) would be empty but for a hundredth.
#pragma once

#include <algorithm>

#include "ops/gpu_step.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

PL_BOTH int tiles_of(int rows, int of_tile) { return (rows + of_tile - 1) / of_tile; }

// The tile that a block of the grid's x has.
struct GpuTile {
  int sequence;  // the count of live ones: the block has none
  int index;     // of the sequence's tiles
  int behind;    // how many of them follow
};

// Looks for the block's tile of kRows rows; a warp's lanes together. The lane that finds it puts it down.
template <int kRows>
PL_DEV void find_tile(const int32_t* starts, int live, GpuTile* found) {
  constexpr int kOfLane = 4;  // sequences
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize;
  int sought = static_cast<int>(blockIdx.x);  // of the tiles from `first` on
  for (int first = 0; first < live; first += kOfLane * gpu::kWarpSize) {
    const int own = first + lane * kOfLane;
    int tiles[kOfLane], of_lane = 0;
    PL_UNROLL
    for (int i = 0; i < kOfLane; ++i) {
      tiles[i] = own + i < live ? tiles_of(starts[own + i + 1] - starts[own + i], kRows) : 0;
      of_lane += tiles[i];
    }
    int before = 0, all = of_lane;  // of the lanes before this one; of all lanes
    PL_UNROLL
    for (int d = 1; d < gpu::kWarpSize; d *= 2) {
      const int others = __shfl_xor_sync(gpu::kAll, all, d);
      if ((lane & d) != 0) before += others;
      all += others;
    }
    if (sought >= all) {
      sought -= all;
      continue;
    }
    if (sought < before || sought >= before + of_lane) return;
    GpuTile tile{own, sought - before, 0};
    PL_UNROLL
    for (int i = 0; i < kOfLane; ++i) {
      tile.behind = tiles[i] - 1 - tile.index;
      if (tile.behind >= 0) break;
      ++tile.sequence;
      tile.index -= tiles[i];
    }
    *found = tile;
    return;
  }
  if (lane == 0) *found = {live, 0, 0};
}
// The block's tile. All its threads ask together; `space` is shared memory, which is free again behind it. By
// way of that the compiler knows that all lanes have the same, and spills nothing for it.
template <int kRows>
PL_DEV GpuTile tile_of_block(const int32_t* starts, int live, void* space) {
  auto* const found = static_cast<GpuTile*>(space);
  if (gpu::warp_of_block() == 0) find_tile<kRows>(starts, live, found);
  __syncthreads();
  const GpuTile tile = *found;
  __syncthreads();
  return tile;
}

// The number of blocks that such a grid has along x.
struct TileGrid {
  const int32_t* starts = nullptr;  // where the host has what it sent; neither: it does not know
  const double* step = nullptr;
  StepValue which{};                               // how many sequences are live
  int64_t tokens = 0, sequences = 0, longest = 0;  // as planned

  // Blocks for all tiles that may come: for what is bound, and what is captured to be launched again and
  // again, where blocks without a tile end at once.
  [[nodiscard]] int64_t planned(int rows) const {
    return std::min((tokens + sequences * (rows - 1)) / rows, sequences * ((longest + rows - 1) / rows));
  }
  // Blocks for the tiles that were sent now.
  [[nodiscard]] int64_t live(int rows) const {
    const auto count = static_cast<int>(step_value(step, which));
    int64_t tiles = 0;
    for (int s = 0; s < count; ++s) tiles += tiles_of(starts[s + 1] - starts[s], rows);
    return tiles;
  }
  [[nodiscard]] unsigned blocks(const gpu::Stream& stream, int rows) const {
    const bool known = starts != nullptr && step != nullptr && !stream.only_loads() && !stream.captures();
    return static_cast<unsigned>(std::max<int64_t>(1, known ? live(rows) : planned(rows)));
  }
};

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
