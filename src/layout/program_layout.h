// The addresses of all tensors of a set of programs: one arena in each space (device, host, a file on disk).
//
// The programs of a run (micro-step, update, evaluation, ...) work on the same persistent tensors, matched by
// name, which fill the front of their space's arena, first what the processes of a node share. Behind them lies its
// transient region, used by one program at a time: its size is the largest need of any program. This is the only place
// where sizes and offsets are decided; report, executor, checkpoint and memory errors read these tables.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "graph/graph.h"

namespace plimsoll {

// Offsets are multiples of this: a cache line on the CPU, what CUDA's vector loads and TMA ask for, and a
// disk's smallest block.
inline constexpr int64_t kArenaAlignment = 512;

// One tensor's place. Persistent tensors live through all programs; transient ones from op `first` to op
// `last` of their program, both included.
struct TableRow {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  Role role = Role::activation;
  int64_t bytes = 0;
  int64_t offset = 0;  // in the arena of its space
  int32_t first = 0, last = 0;
  std::string shares;  // name of the tensor whose storage it took over, or empty
  Space space = Space::device;
  BlockId block = kNoBlock;
  ParameterInfo parameter = {};  // of weights and masters
  Name module = {};              // of an adapter's: the module that it adapts
  Shape whole = {};              // of a rank's piece: the shape of all pieces together; else empty

  [[nodiscard]] bool is_piece() const { return whole.rank() > 0; }
  // The shape that files have it in.
  [[nodiscard]] const Shape& whole_shape() const { return is_piece() ? whole : shape; }
  [[nodiscard]] int64_t whole_bytes() const { return whole_shape().elements() * size_of(dtype); }
};

inline constexpr std::array<Space, 3> kSpaces = {Space::device, Space::host, Space::disk};

// Sizes of the two regions of an arena.
struct ArenaSizes {
  int64_t persistent_bytes = 0;
  int64_t transient_bytes = 0;
  [[nodiscard]] int64_t total() const { return persistent_bytes + transient_bytes; }
};

// Processes of a node that have what is frozen once: each counts its share of the one copy.
struct NodeCopy {
  int64_t processes = 1;        // 1: each has a copy of its own
  Space space = Space::device;  // with cards the host: each of them has memory of its own

  [[nodiscard]] bool is_shared() const { return processes > 1; }
  // A piece is another one at each process.
  [[nodiscard]] bool has(Role role, Space in, bool is_piece) const {
    return is_shared() && role == Role::frozen_weight && in == space && !is_piece;
  }
  // The share of a tensor that takes so many bytes of an arena, and of the page that the copy may end within.
  [[nodiscard]] int64_t share_of(int64_t bytes) const { return ceil_div(bytes, processes); }
  [[nodiscard]] int64_t share_of_last_page() const { return is_shared() ? share_of(kSharedUnit) : 0; }

  static constexpr int64_t kSharedUnit = 4096;
};

// The front of a space's arena that the processes of a node have once.
struct SharedFront {
  int64_t bytes = 0;  // whole pages
  int64_t share = 0;  // of each process; all of them together are no less than `bytes`
  Space space = Space::device;
  // A process maps this much more than it counts, of all spaces or of one.
  [[nodiscard]] int64_t of_others() const { return bytes - share; }
  [[nodiscard]] int64_t of_others(Space in) const { return in == space ? of_others() : 0; }
  [[nodiscard]] int64_t bytes_in(Space in) const { return in == space ? bytes : 0; }
};

struct ProgramLayout {
  std::string name;
  std::vector<TableRow> rows;  // by tensor id of the program's graph, persistent tensors included
  // Bytes on the device.
  int64_t transient_bytes = 0;
  int64_t lower_bound_bytes = 0;  // the largest sum of transient bytes alive at one op
  int32_t peak_op = 0;
};

struct ArenaLayout {
  std::vector<TableRow> persistent;  // of all spaces
  std::vector<ProgramLayout> programs;
  int64_t persistent_bytes = 0;  // of the device, like transient_bytes
  int64_t transient_bytes = 0;
  ArenaSizes host, disk;
  SharedFront shared;  // counted in the persistent bytes of its space
  double work = 0;     // of searches where a layout missed its bound (layout::Placement)
  [[nodiscard]] ArenaSizes sizes(Space space) const;
  [[nodiscard]] int64_t arena_bytes(Space space = Space::device) const { return sizes(space).total(); }
  [[nodiscard]] int64_t lower_bound_bytes() const;
  [[nodiscard]] bool is_shared(const TableRow& row) const {
    return row.space == shared.space && row.offset < shared.bytes;
  }
  // nullptr when there is no such persistent tensor.
  [[nodiscard]] const TableRow* find_persistent(std::string_view name) const;
};

struct LayoutOptions {
  bool reuse = true;  // off: every transient tensor has bytes of its own, for tests of the layout
  NodeCopy node_copy = {};
};

// Throws InternalError when two programs disagree about a persistent tensor.
ArenaLayout lay_out(std::span<const Graph> programs, const LayoutOptions& options = {});

// A transient storage's life: from the op that writes it first to the last one that uses it, both included.
// A transfer uses its copy and its offloaded tensor until its wait.
struct StorageLife {
  int64_t bytes = 0;  // of its arena
  int32_t first = 0, last = 0;
  Space space = Space::device;
};
std::vector<StorageLife> storage_lives(const Graph& graph);

// Plays every program's ownership of bytes, op by op and in all spaces: what an op reads must still hold what
// was written there, an output may lie on an input only where the op's rule allows it, and nothing leaves its
// region. From a fetch to its wait nothing touches the copy, from a store to its wait nothing writes it;
// offloaded tensors are left to transfers, and every transfer has its wait. Independent of how the layout was made.
// Throws InternalError with the op and both tensors.
void validate(std::span<const Graph> programs, const ArenaLayout& layout);

}  // namespace plimsoll
