// The split of attention over a cache among the blocks of a GPU: a fact that rule and kernel share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attention/attention_shape.h"

namespace plimsoll {

// Keys that a block takes at a time.
inline constexpr int64_t kCachedKeys = 128;

// A tile is of query rows (a query's head each) that read the same head of keys. One token has few of them,
// so its keys are split too: each part has a softmax of its own, and these are put together in order. By what
// is planned alone, so that every card gives the same bits.
struct CachedSplit {
  int64_t sequences = 1;  // with a part of the cache each
  int64_t queries = 1;    // of a sequence
  int64_t tile_rows = 1;  // 1, 4 or 8
  int64_t tiles = 1;      // of a sequence and a head of keys
  int64_t parts = 1;      // of the keys; 1: nothing is put together
};

inline CachedSplit cached_split(const AttentionShape& shape, int64_t rows, bool apart, int64_t keys) {
  constexpr int64_t kBlocks = 512;  // enough for a large card
  CachedSplit split;
  split.sequences = apart ? rows : 1;
  split.queries = apart ? 1 : rows;
  const int64_t of_keys = split.queries * (shape.heads / shape.kv_heads);
  split.tile_rows = of_keys == 1 ? 1 : of_keys <= 4 ? 4 : 8;
  split.tiles = (of_keys + split.tile_rows - 1) / split.tile_rows;
  const int64_t blocks = split.tiles * split.sequences * shape.kv_heads;
  split.parts = std::clamp((kBlocks + blocks - 1) / blocks, int64_t{1},
                           std::max<int64_t>(1, (keys + kCachedKeys - 1) / kCachedKeys));
  return split;
}

// The split of an attention_cached op.
CachedSplit cached_split(const Graph& graph, const Op& op);

}  // namespace plimsoll
