// Walks over the chunks of a tree of segments: those of a segment, then all that descend from it, one after
// the other; or all of that backwards. If several segments continue one, the walk comes back: forward to the
// state there, backward with another part of its gradient. Include it only in gla_gpu.cu.
#pragma once

#include "ops/scan/gpu_gla_forward.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

// The place of a walk: chunk `index` of a segment. Forward it leaves out chunks that nothing continues.
template <bool kBack>
struct GlaPlace {
  const GlaSequences& in;
  int segment, index;
  int number = 0;  // among the walk's chunks

  PL_DEV GlaPlace(const GlaSequences& all, int root, int end)
      : in(all), segment(kBack ? end - 1 : root), index(kBack ? all.chunks(segment) - 1 : 0) {}
  [[nodiscard]] PL_DEV GlaChunk chunk() const { return GlaChunk(in, segment, index); }
  [[nodiscard]] PL_DEV bool begins() const { return index == 0; }
  [[nodiscard]] PL_DEV bool ends() const { return index + 1 == in.chunks(segment); }
  PL_DEV void go_to(int to) {
    for (; number < to; ++number) kBack ? back() : on();
  }

 private:
  PL_DEV void back() {
    if (index-- == 0) index = in.chunks(--segment) - 1;
  }
  PL_DEV void on() {
    do {
      if (++index == in.chunks(segment)) {
        ++segment;
        index = 0;
      }
    } while (ends() && !goes_on(in, segment));
  }
};

// The number of chunks in a walk over a tree.
template <bool kBack>
PL_DEV int chunks_of_walk(const GlaSequences& in, int root, int end) {
  int count = kBack ? -1 : 0;
  for (int s = root; s < end; ++s) count += in.chunks(s) - (kBack || goes_on(in, s) ? 0 : 1);
  return count;
}

// A block's tile at a fork, in f32. Threads write and read their own values alone.
PL_DEV float* at_fork(float* forks, const GlaSequences& in, int segment, int kv_heads) {
  const int64_t blocks = int64_t{kv_heads} * gridDim.y * gridDim.z;
  const int64_t block =
      (static_cast<int>(blockIdx.x) % kv_heads * int64_t{gridDim.y} + blockIdx.y) * gridDim.z + blockIdx.z;
  return forks + (fork_number(in, segment) * blocks + block) * (kGlaTile * kGlaTile) + threadIdx.x;
}
// visit(kept value, the state's value) for all of a thread's.
template <class Visit>
PL_DEV void for_tile(float* at, GlaStateTile& state, Visit visit) {
  PL_UNROLL
  for (int j = 0; j < kGlaTile / 8; ++j) {
    PL_UNROLL
    for (int r = 0; r < 4; ++r) visit(at[(j * 4 + r) * kGlaThreads], state[j][r]);
  }
}

// The step behind a chunk of a walk: forward, a segment that starts from its last state has that state.
template <class T>
PL_DEV void hand_on(const GlaWalker<T, false>& part, const GlaPlace<false>& from, GlaStateTile& state) {
  const GlaSequences& in = from.in;
  if (!from.ends()) return part.store(state, GlaChunk(in, from.segment, from.index + 1));
  for (int s = from.segment + 1; s < in.count && in.parents[s] >= from.segment; ++s)
    if (in.parents[s] == from.segment) part.store(state, GlaChunk(in, s, 0));
  if (!forks(in, from.segment)) return;
  for_tile(at_fork(part.a.forks, in, from.segment, part.a.kv_heads), state,
           [](float& kept, float& own) { kept = own; });
}
// Backward, a segment's parent has a part of its gradient: the last segment's first.
template <class T>
PL_DEV void hand_on(const GlaWalker<T, true>& part, const GlaPlace<true>& from, GlaStateTile& state) {
  const GlaSequences& in = from.in;
  if (!from.begins() || parent_of(in, from.segment) < 0) return;
  const int parent = in.parents[from.segment];
  if (!forks(in, parent)) return;
  float* const sum = at_fork(part.a.forks, in, parent, part.a.kv_heads);
  if (from.segment == parent + 1)
    for_tile(sum, state, [](float& kept, float& own) { own += kept; });
  else if (is_last_child(in, from.segment))
    for_tile(sum, state, [](float& kept, float& own) { kept = own; });
  else
    for_tile(sum, state, [](float& kept, float& own) { kept += own; });
}

// Makes the state that of a chunk, which is the next of a walk, and stores it where others do not.
template <class T>
PL_DEV void come_to(const GlaWalker<T, false>& part, const GlaPlace<false>& to, GlaStateTile& state) {
  const int parent = parent_of(to.in, to.segment);
  if (!to.begins() || parent + 1 == to.segment) return;
  for_tile(at_fork(part.a.forks, to.in, parent, part.a.kv_heads), state,
           [](float& kept, float& own) { own = kept; });
}
template <class T>
PL_DEV void come_to(const GlaWalker<T, true>& part, const GlaPlace<true>& to, GlaStateTile& state) {
  const GlaChunk chunk = to.chunk();
  if (!chunk.last) return part.store(state, chunk);
  PL_UNROLL
  for (int j = 0; j < kGlaTile / 8; ++j) {
    PL_UNROLL
    for (int r = 0; r < 4; ++r) state[j][r] = 0;
  }
}

// gla_walk over trees: a block has that of a root.
template <class T, bool kBack>
__global__ void __launch_bounds__(kGlaThreads) gla_walk_trees(Gla<T> a, GlaWalk<T, kBack> walk) {
  using Product = typename GlaWalker<T, kBack>::Product;
  PL_SHARED(gpu::Pack<T>, packs, Product::kRingValues / kGlaPack<T>);
  const GlaSequences in = a.live();
  const int root = static_cast<int>(blockIdx.x) / a.kv_heads;
  if (root >= in.count || in.parents[root] >= 0) return;
  const int end = subtree_end(in, root);
  const int chunks = chunks_of_walk<kBack>(in, root, end);
  if (chunks < 1) return;
  const GlaWalker<T, kBack> part{a, walk};
  GlaPlace<kBack> brought(in, root, end), at(in, root, end);
  GlaStateTile state = {};
  const auto bring = [&](int step, T* stage) {
    brought.go_to(step / part.steps_of_chunk);
    part.bring(brought.chunk(), step, stage);
  };
  const auto before = [&](int step) {
    if (step == 0 || step % part.steps_of_chunk != 0) return;
    hand_on(part, at, state);
    at.go_to(step / part.steps_of_chunk);
    come_to(part, at, state);
    float decays[2];
    part.load_decays(decays, at.chunk());
    scale_keys(state, decays);
  };
  Product::add(state, reinterpret_cast<T*>(packs), chunks * part.steps_of_chunk, bring, before);
  hand_on(part, at, state);
  if constexpr (kBack) part.store(state, GlaChunk(in, root, 0));
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
