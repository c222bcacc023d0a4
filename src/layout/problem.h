// The offset-assignment problem: buffers with known sizes and lifetimes share one arena, and two buffers
// alive at the same op must not overlap. Pure numbers, no graph.
#pragma once

#include <cstdint>
#include <vector>

#include "base/name.h"

namespace plimsoll::layout {

struct Buffer {
  Name name;
  int64_t bytes = 0;
  int32_t first = 0;  // index of the op that writes it
  int32_t last = 0;   // index of the last op during which it is alive, inclusive

  friend bool operator==(const Buffer&, const Buffer&) = default;
};

struct Problem {
  std::vector<Buffer> buffers;
  int64_t alignment = 512;  // of every offset, a power of two; 512 B is what CUDA's own allocator gives
  int64_t enough = 0;  // bytes below which less is worth nothing, as another program takes so many anyway
  int64_t beside = 0;  // bytes of the same arena that are not to be placed
  int64_t most = int64_t{1} << 62;  // a placement of more bytes is of no use
};

// A solver's answer; offsets[i] belongs to buffers[i].
struct Placement {
  std::vector<int64_t> offsets;
  int64_t top = 0;  // bytes the arena needs: the highest end, every buffer counted in whole alignments
  int64_t lower_bound = 0;  // of the problem; top == lower_bound means that no layout is smaller
  std::string tie_break;    // which order of the solver found it
  double work = 0;          // of the searches that followed (Evictions::work)
  bool gave_up = false;     // they were left out, as they would have ended above what is of use
};

// The bytes alive at every op where some buffer begins (between those ops the live bytes only fall). At most
// one point per buffer, however far apart the op indices are; two buffers are alive together at some op
// exactly if they are at one of these points.
struct LiveProfile {
  std::vector<int32_t> ops;         // ascending, distinct
  std::vector<int64_t> live_bytes;  // of aligned sizes, same length
};

// Bytes a buffer takes from its arena: its size rounded up to the alignment.
int64_t aligned_bytes(const Problem& problem, const Buffer& buffer);

// Throws InternalError naming the buffer unless sizes and lifetimes make sense and all sizes together fit
// into 62 bits, so that no sum of offsets and sizes overflows.
void check_problem(const Problem& problem);

// O(n log n). The problem must pass check_problem.
LiveProfile live_profile(const Problem& problem);

// The largest sum of aligned bytes alive at one op: no layout needs less. 0 without buffers.
int64_t lower_bound(const Problem& problem);
// The first op where that many bytes are alive; throws InternalError without buffers.
int32_t peak_op(const Problem& problem);

}  // namespace plimsoll::layout
