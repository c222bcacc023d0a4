#include "plan/program_needs.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "layout/program_layout.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

size_t index(Space space) { return static_cast<size_t>(space); }

constexpr BlockId kNobody = -2;  // no block has this number, and kNoBlock is another

using Slots = std::array<BlockId, kSlots>;
constexpr Slots nobody() {
  Slots slots{};
  slots.fill(kNobody);
  return slots;
}

// The blocks whose ops, tensors and seconds count for all of their slot, and those whose storages do. A
// stack's first block is none of them: below the model's first one nothing trains.
struct SampleBlocks {
  Slots blocks = nobody();
  Slots forward = nobody();   // left by their forward pass
  Slots input = nobody();     // left to their backward pass
  Slots repeated = nobody();  // made again, for the block after them
  bool mixture = false;
};

// Of a mixture: a block in the midst of the first ones and one in the midst of the rest. Of three segments of
// three: the first, the midst and the last block of one; the input that the middle segment keeps, and the
// inputs that wait inside of the middle and of the last segment.
SampleBlocks blocks_of(const Graph& graph, Samples samples) {
  SampleBlocks result;
  if (samples == Samples::none) return result;
  result.mixture = samples == Samples::mixture;
  const std::vector<Stack> stacks = graph.stacks();
  check_internal(stacks.size() <= kMostStacks, "needs_of: " + graph.name() + " has too many stacks");
  for (size_t i = 0; i < stacks.size(); ++i) {
    const size_t slot = i * kSlotsOfStack;
    const BlockId first = stacks[i].first;
    check_internal(stacks[i].count ==
                       (result.mixture ? kSampledFirst + kSampledRest : kSampledSegments * kSampledSegment),
                   "needs_of: " + graph.name() + " has another depth than its samples");
    if (result.mixture) {
      result.blocks[slot] = result.forward[slot] = first + 1;
      result.blocks[slot + 1] = result.forward[slot + 1] = first + 3;
    } else {
      for (BlockId at = 0; at < 3; ++at) result.blocks[slot + static_cast<size_t>(at)] = first + 3 + at;
      // The input may lie in storage that was first written blocks before.
      result.input[slot] = result.repeated[slot + 1] = first + 3;
      result.repeated[slot + 2] = first + 6;
    }
  }
  return result;
}

bool is_among(BlockId block, const Slots& slots) {
  return std::find(slots.begin(), slots.end(), block) != slots.end();
}

// Adds an amount, for its block where that is one of the samples.
template <class Amount>
void add(Affine<Amount>& to, Amount amount, BlockId block, const Slots& samples) {
  to.base += amount;
  for (size_t i = 0; i < kSlots; ++i)
    if (block == samples[i]) to.slope[i] += amount;
}

// What a storage's bytes count as: what the forward pass of a sample leaves to the backward pass, or an input
// of the next block that a segment's repetition makes.
AffineBytes storage_bytes(const Graph& graph, const StorageLife& life, const SampleBlocks& samples) {
  AffineBytes bytes{life.bytes, {}};
  const Op& writer = graph.ops()[static_cast<size_t>(life.first)];
  const Op& last = graph.ops()[static_cast<size_t>(life.last)];
  if (last.stage == Stage::forward) return bytes;
  const BlockId block = writer.block;
  const bool forward = writer.stage == Stage::forward;
  const BlockId reader = last.block;
  for (size_t i = 0; i < kSlots; ++i) {
    const bool kept = forward && (block == samples.forward[i] || reader == samples.input[i]);
    const bool waits_inside = !forward && reader > block && block == samples.repeated[i];
    if (kept || waits_inside) bytes.slope[i] = life.bytes;
  }
  return bytes;
}

// The op with so many rows of logits at a time.
Op with_rows(Op op, int64_t chunk) {
  op.attrs["chunk"] = chunk;
  return op;
}

// For each op, what is alive and how much of it belongs to each sample; ops of a mixture's samples themselves
// are left out, since the block after them has the same and more.
void add_lives(const Graph& graph, const SampleBlocks& samples, const std::vector<std::vector<int64_t>>& rows,
               ProgramNeeds& needs) {
  const size_t n = graph.ops().size();
  std::array<std::vector<AffineBytes>, 3> change;
  for (auto& of_space : change) of_space.resize(n + 1);
  for (const StorageLife& life : storage_lives(graph)) {
    const AffineBytes bytes = storage_bytes(graph, life, samples);
    change[index(life.space)][static_cast<size_t>(life.first)].add(bytes, 1);
    change[index(life.space)][static_cast<size_t>(life.last) + 1].add(bytes, -1);
  }
  for (size_t space = 0; space < change.size(); ++space) {
    AffineBytes alive;
    Largest largest;
    for (size_t i = 0; i < n; ++i) {
      alive.add(change[space][i], 1);
      const Op& op = graph.ops()[i];
      if (samples.mixture && is_among(op.block, samples.blocks)) continue;
      if (space != index(Space::device) || !rule_of(op.kind).chunked) {
        largest.take(alive);
        continue;
      }
      AffineBytes without = alive;
      if (op.scratch != kNoTensor)
        without.base -= round_up(graph.tensor(op.scratch).bytes(), kArenaAlignment);
      needs.losses.push_back({without, rows[i]});
    }
    needs.transient[space] = largest.list();
  }
}

// By tensor: the block whose depth it comes with, a persistent one's own and else that of the op that makes
// it. (Gradients of one block may be summed up by all blocks of another stack.)
std::vector<BlockId> find_makers(const Graph& graph) {
  std::vector<BlockId> makers;
  for (const Tensor& tensor : graph.tensors())
    makers.push_back(is_persistent(tensor.role) ? tensor.block : kNobody);
  for (const Op& op : graph.ops()) {
    const auto make = [&](TensorId id) {
      if (id != kNoTensor && makers[static_cast<size_t>(id)] == kNobody)
        makers[static_cast<size_t>(id)] = op.block;
    };
    for (const TensorId id : op.outputs) make(id);
    make(op.scratch);
  }
  for (BlockId& block : makers)
    if (block == kNobody) block = kNoBlock;
  return makers;
}

// Seconds of a program for one number of rows at a time.
struct OpSeconds {
  std::vector<double> seconds;     // by op, on its queue
  std::vector<double> contention;  // by op: of transfers, what they take from the compute queue
};

void add_seconds(const Graph& graph, const SampleBlocks& samples, const OpSeconds& times,
                 ProgramNeeds& needs) {
  AffineSeconds compute, together, io;
  Queues queues;
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    const double before = queues.compute;
    queues.take(op, times.seconds[i], times.contention[i]);
    add(together, queues.compute - before, op.block, samples.blocks);
    const bool transfers = is_queued(op);
    add(transfers ? io : compute, times.seconds[i], op.block, samples.blocks);
    add(compute, times.contention[i], op.block, samples.blocks);
  }
  together.base = queues.end();
  needs.io = io;
  needs.compute.push_back(compute);
  needs.together.push_back(together);
}

}  // namespace

ProgramNeeds needs_of(const Graph& graph, int64_t runs, Samples kind, const std::vector<int64_t>& chunks,
                      const DeviceDescription& device, TimeModel& time) {
  const SampleBlocks samples = blocks_of(graph, kind);
  ProgramNeeds needs;
  needs.runs = runs;
  for (const BlockId block : find_makers(graph)) add(needs.tensors, int64_t{1}, block, samples.blocks);
  for (const Tensor& tensor : graph.tensors()) {
    if (!is_persistent(tensor.role)) continue;
    ProgramNeeds::Persistent& persistent = needs.persistent[tensor.name];
    persistent.space = tensor.space;
    add(persistent.bytes, round_up(tensor.bytes(), kArenaAlignment), tensor.block, samples.blocks);
  }
  OpSeconds times;
  std::vector<std::vector<int64_t>> rows(graph.ops().size());  // of losses: workspaces by chunk
  std::vector<size_t> losses;
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    add(needs.ops, int64_t{1}, op.block, samples.blocks);
    add(needs.disk_traffic, disk_bytes_of(graph, op), op.block, samples.blocks);
    times.seconds.push_back(time.seconds_of(graph, op));
    times.contention.push_back(is_queued(op) ? contention_seconds(graph, op, device.rates) : 0.0);
    if (!rule_of(op.kind).chunked) continue;
    losses.push_back(i);
    for (const int64_t chunk : chunks)
      rows[i].push_back(round_up(scratch_bytes_of(graph, with_rows(op, chunk), device), kArenaAlignment));
  }
  add_lives(graph, samples, rows, needs);
  for (const int64_t chunk : chunks) {
    for (const size_t i : losses) times.seconds[i] = time.seconds_of(graph, with_rows(graph.ops()[i], chunk));
    add_seconds(graph, samples, times, needs);
    if (losses.empty()) break;  // alike for all
  }
  needs.compute.resize(chunks.size(), needs.compute.front());
  needs.together.resize(chunks.size(), needs.together.front());
  return needs;
}

}  // namespace plimsoll
