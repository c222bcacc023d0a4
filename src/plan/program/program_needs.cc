#include "plan/program/program_needs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "layout/program_layout.h"
#include "ops/rule.h"
#include "ops/transfer.h"

namespace plimsoll {
namespace {

constexpr BlockId kNobody = -2;  // no block has this number, and kNoBlock is another

using Slots = std::array<BlockId, kSlots>;
constexpr Slots nobody() {
  Slots slots{};
  slots.fill(kNobody);
  return slots;
}

// The blocks whose ops, tensors and seconds count for all of their slot, and those whose storages do. A
// stack's first block is not among them: below the model's first one nothing trains.
struct SampleBlocks {
  Slots blocks = nobody();
  Slots forward = nobody();   // left by their forward pass
  Slots input = nobody();     // left to their backward pass
  Slots repeated = nobody();  // made again, for the block after them
  bool mixture = false;
};

// Chooses the blocks that are measured. Of a mixture: a block in the midst of the first ones and one in the
// midst of the rest. Of three segments of three: the first, the midst and the last block of one; the input
// that the middle segment keeps, and the inputs that wait inside of the middle and of the last segment.
// Segments of two have no midst, and always the input that waits in the middle one.
SampleBlocks blocks_of(const Graph& graph, Samples samples) {
  SampleBlocks result;
  if (samples == Samples::none) return result;
  result.mixture = samples == Samples::mixture;
  const std::vector<Stack> stacks = graph.stacks();
  check_internal(stacks.size() <= kMostStacks, formatted("needs_of: {} has too many stacks", graph.name()));
  for (size_t i = 0; i < stacks.size(); ++i) {
    const size_t slot = i * kSlotsOfStack;
    const BlockId first = stacks[i].first;
    const auto size = static_cast<BlockId>(segment_size(samples));
    check_internal(
        stacks[i].count == (result.mixture ? kSampledFirst + kSampledRest : kSampledSegments * size),
        formatted("needs_of: {} has another depth than its samples", graph.name()));
    if (result.mixture) {
      result.blocks[slot] = result.forward[slot] = first + 1;
      result.blocks[slot + 1] = result.forward[slot + 1] = first + 3;
    } else {
      result.blocks[slot] = first + size;
      result.blocks[slot + 2] = first + 2 * size - 1;
      // The input may lie in storage that was first written blocks before.
      result.input[slot] = first + size;
      result.repeated[slot + 2] = first + 2 * size;
      if (samples == Samples::pairs) continue;
      result.blocks[slot + 1] = first + size + 1;
      result.repeated[slot + 1] = first + size;
    }
  }
  return result;
}

bool is_among(BlockId block, const Slots& slots) {
  return std::find(slots.begin(), slots.end(), block) != slots.end();
}

// The slot that a block is the sample of; kSlots: of none.
size_t slot_of(BlockId block, const Slots& samples) {
  return static_cast<size_t>(std::find(samples.begin(), samples.end(), block) - samples.begin());
}

template <class Amount>
void add(Affine<Amount>& to, Amount amount, size_t slot) {
  to.base += amount;
  if (slot < kSlots) to.slope[slot] += amount;
}

// Adds an amount, for its block where that is one of the samples.
template <class Amount>
void add(Affine<Amount>& to, Amount amount, BlockId block, const Slots& samples) {
  add(to, amount, slot_of(block, samples));
}

// The bytes of a storage, by what they count as: what the forward pass of a sample leaves to the backward
// pass, or an input of the next block that a segment's repetition makes.
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

using TimedOp = MeasuredProgram::TimedOp;
using LossOp = MeasuredProgram::LossOp;

// For each op, what is alive and how much of it belongs to each sample; ops of a mixture's samples themselves
// are left out, since the block after them has the same and more.
void add_lives(const Graph& graph, const std::vector<StorageLife>& lives, const SampleBlocks& samples,
               const std::vector<LossOp>& losses, ProgramNeeds& needs) {
  const size_t n = graph.ops().size();
  struct Change {
    std::vector<int64_t> base;                               // by op; empty where a space has no storage
    std::vector<std::pair<size_t, AffineBytes>> of_samples;  // at few ops
  };
  std::array<Change, 3> changes;
  for (const StorageLife& life : lives) {
    AffineBytes bytes = storage_bytes(graph, life, samples);
    Change& change = changes[index(life.space)];
    const auto first = static_cast<size_t>(life.first), after = static_cast<size_t>(life.last) + 1;
    change.base.resize(n + 1);
    change.base[first] += bytes.base;
    change.base[after] -= std::exchange(bytes.base, 0);
    if (bytes.slope == AffineBytes().slope) continue;
    change.of_samples.emplace_back(first, bytes);
    change.of_samples.emplace_back(after, AffineBytes()).second.add(bytes, -1);
  }
  for (size_t space = 0; space < changes.size(); ++space) {
    Change& change = changes[space];
    std::ranges::sort(change.of_samples, {}, [](const auto& at) { return at.first; });
    AffineBytes alive;
    Largest largest, in_midst, at_end;
    auto of_samples = change.of_samples.begin();
    auto loss = losses.begin();
    for (size_t i = 0; i < n && !change.base.empty(); ++i) {
      alive.base += change.base[i];
      for (; of_samples != change.of_samples.end() && of_samples->first == i; ++of_samples)
        alive.add(of_samples->second, 1);
      const Op& op = graph.ops()[i];
      if (samples.mixture && is_among(op.block, samples.blocks)) continue;
      if (samples.mixture && op.block == samples.blocks[0] + 1) in_midst.take(alive);
      if (samples.mixture && op.block == samples.blocks[1] + 2) at_end.take(alive);
      if (space != index(Space::device) || !rule_of(op.kind).chunked) {
        largest.take(alive);
        continue;
      }
      while (loss->at < i) ++loss;
      AffineBytes without = alive;
      if (op.scratch != kNoTensor)
        without.base -= round_up(graph.tensor(op.scratch).bytes(), kArenaAlignment);
      needs.losses.push_back({without, loss->workspace});
    }
    needs.transient[space] = largest.list();
    if (space != index(Space::device)) continue;
    needs.in_midst = in_midst.list();
    needs.at_end = at_end.list();
  }
}

// Launches by rows of logits at a time, where the device counts them.
void add_calls(const Graph& graph, const SampleBlocks& samples, const std::vector<LossOp>& losses,
               const std::vector<int64_t>& chunks, const DeviceDescription& device, ProgramNeeds& needs) {
  needs.calls.resize(chunks.size());
  if (device.launch_seconds == 0 && device.backend != Backend::gpu) return;
  AffineBytes calls;
  auto loss = losses.begin();
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    if (loss != losses.end() && loss->at == i) {
      for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
        add(needs.calls[chunk], gpu_launches(graph, with_rows(op, chunks[chunk]), device.library_products),
            op.block, samples.blocks);
      ++loss;
      continue;
    }
    add(calls, gpu_launches(graph, op, device.library_products), op.block, samples.blocks);
  }
  for (AffineBytes& of_chunk : needs.calls) of_chunk.add(calls, 1);
}

// By tensor: the first op after its writer that reads it and moves nothing.
std::vector<size_t> first_readers(const Graph& graph) {
  std::vector<size_t> first(graph.tensors().size(), graph.ops().size());
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    if (is_transfer(graph.ops()[i].kind)) continue;
    for (const TensorId id : graph.ops()[i].inputs)
      if (id != kNoTensor) first[static_cast<size_t>(id)] = std::min(first[static_cast<size_t>(id)], i);
  }
  return first;
}

// The ops from the first to the last of which a storage is alive for sure, whatever is made again for the
// backward pass and whichever activations are fetched; none: no more is known than that it is touched.
// Forward passes are alike but for what they keep, and so is all that has no backward pass. In the backward
// pass a weight's copy is read at the same ops and earlier ones, one stretch at a time.
std::optional<std::pair<size_t, size_t>> sure_life(const Graph& graph, const StorageLife& life,
                                                   const std::vector<size_t>& readers) {
  const auto at = [](int32_t op) { return static_cast<size_t>(op); };
  const Op& first = graph.ops()[at(life.first)];
  const Op& last = graph.ops()[at(life.last)];
  const std::pair whole{at(life.first), at(life.last)};
  if (first.stage == Stage::forward && last.stage != Stage::forward) return std::nullopt;
  if (!is_transfer(first.kind)) return is_transfer(last.kind) ? std::nullopt : std::optional(whole);
  if (first.kind != OpKind::fetch || !is_persistent(graph.tensor(offloaded_of(first)).role))
    return std::nullopt;
  if (first.stage == Stage::forward) return whole;
  const size_t reader = readers[static_cast<size_t>(copy_of(first))];
  if (is_transfer(last.kind) || reader > at(life.last)) return std::nullopt;
  return std::pair{reader, at(life.last)};
}

// The most that is alive on the device at an op for sure; of the loss no workspace.
int64_t floor_of(const Graph& graph, const std::vector<StorageLife>& lives) {
  const auto& ops = graph.ops();
  const bool repeats = std::ranges::any_of(ops, [](const Op& op) { return op.stage == Stage::backward; });
  const std::vector<size_t> readers = first_readers(graph);
  std::vector<int64_t> change(ops.size() + 1), touched(ops.size());
  for (const StorageLife& life : lives) {
    if (life.space != Space::device) continue;
    const auto first = static_cast<size_t>(life.first), last = static_cast<size_t>(life.last);
    const auto sure = repeats ? sure_life(graph, life, readers) : std::pair(first, last);
    if (sure) {
      change[sure->first] += life.bytes;
      change[sure->second + 1] -= life.bytes;
      continue;
    }
    touched[first] += life.bytes;
    if (last != first) touched[last] += life.bytes;
  }
  int64_t most = 0, alive = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    alive += change[i];
    if (is_transfer(ops[i].kind)) continue;
    const bool chunked = rule_of(ops[i].kind).chunked && ops[i].scratch != kNoTensor;
    const int64_t workspace = chunked ? round_up(graph.tensor(ops[i].scratch).bytes(), kArenaAlignment) : 0;
    most = std::max(most, alive + touched[i] - workspace);
  }
  return most;
}

// By tensor: the block whose depth it comes with, a persistent one's own and else that of the op that makes
// it. (Gradients of one block may be summed up by all blocks of another stack.)
std::vector<BlockId> find_makers(const Graph& graph) {
  std::vector<BlockId> makers;
  makers.reserve(graph.tensors().size());
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

// Ops of one slot that follow each other, with the transfers right before them: a stretch of a sample block,
// or of what is not a block.
struct TimedStretch {
  size_t begin = 0, end = 0;
  size_t slot = kSlots;
};

std::vector<TimedStretch> stretches_of(const std::vector<TimedOp>& ops) {
  std::vector<TimedStretch> stretches;
  size_t begin = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].copy != kNoTensor) continue;  // goes with what follows
    if (stretches.empty() || stretches.back().slot != ops[i].slot)
      stretches.push_back({begin, begin, ops[i].slot});
    stretches.back().end = begin = i + 1;
  }
  if (begin < ops.size()) stretches.push_back({begin, ops.size(), kSlots});
  return stretches;
}

// By op: of a wait, how many transfers were issued since the one that it is for, itself included; 0: none is.
std::vector<size_t> waits_of(const std::vector<TimedOp>& ops, size_t tensors) {
  std::vector<size_t> waits(ops.size());
  std::vector<size_t> issued(tensors);  // by copy: its number among all transfers, from 1 on
  size_t count = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].copy == kNoTensor) continue;
    size_t& number = issued[static_cast<size_t>(ops[i].copy)];
    if (ops[i].queued)
      number = ++count;
    else if (number > 0)
      waits[i] = count - number + 1;
  }
  return waits;
}

// Both queues, as time_model.h has them, where a wait is known by how long ago its transfer was issued: so a
// stretch can be repeated, and each repetition waits for what the one before it issued.
class RepeatedQueues {
 public:
  void run(const std::vector<TimedOp>& ops, const std::vector<size_t>& waits, const TimedStretch& stretch) {
    for (size_t i = stretch.begin; i < stretch.end; ++i) {
      if (ops[i].queued) {
        io_ = std::max(io_, compute_) + ops[i].seconds;
        compute_ += ops[i].contention;
        complete_.push_back(io_);
      } else if (ops[i].copy == kNoTensor) {
        compute_ += ops[i].seconds;
      } else if (waits[i] > 0 && waits[i] <= complete_.size()) {
        compute_ = std::max(compute_, complete_[complete_.size() - waits[i]]);
      }
    }
  }
  [[nodiscard]] double compute() const { return compute_; }
  [[nodiscard]] double end() const { return std::max(compute_, io_); }

 private:
  double compute_ = 0, io_ = 0;
  std::vector<double> complete_;  // in the order of their issue
};

// The program with the stretches of sample blocks repeated until what they move delays them as it does in the
// midst of a deep model: the first few blocks still compute while the queue of transfers falls behind. Only ops from
// `first_changed` on take other seconds with other rows of logits, so that what comes before is run once.
class SecondsTogether {
 public:
  SecondsTogether(const std::vector<TimedOp>& ops, size_t tensors, size_t first_changed)
      : waits_(waits_of(ops, tensors)), stretches_(stretches_of(ops)) {
    while (begin_ < stretches_.size() && stretches_[begin_].end <= first_changed) ++begin_;
    run(ops, 0, begin_, queues_, seconds_);
  }

  [[nodiscard]] AffineSeconds of(const std::vector<TimedOp>& ops) const {
    AffineSeconds seconds = seconds_;
    RepeatedQueues queues = queues_;
    run(ops, begin_, stretches_.size(), queues, seconds);
    seconds.base = queues.end();
    for (const double slope : seconds.slope) seconds.base -= kRepeats * slope;
    return seconds;
  }

 private:
  static constexpr int kRepeats = 8;

  void run(const std::vector<TimedOp>& ops, size_t begin, size_t end, RepeatedQueues& queues,
           AffineSeconds& seconds) const {
    for (size_t at = begin; at < end; ++at) {
      const TimedStretch& stretch = stretches_[at];
      queues.run(ops, waits_, stretch);
      if (stretch.slot == kSlots) continue;
      double before = 0;
      for (int i = 0; i < kRepeats; ++i) {
        before = queues.compute();
        queues.run(ops, waits_, stretch);
      }
      seconds.slope[stretch.slot] += queues.compute() - before;
    }
  }

  std::vector<size_t> waits_;
  std::vector<TimedStretch> stretches_;
  size_t begin_ = 0;       // the first stretch that changes
  RepeatedQueues queues_;  // and the rest of what comes before it
  AffineSeconds seconds_;
};

// The part that a tensor off the device belongs to; of those that always stay, any.
Part part_of(const Tensor& tensor) {
  switch (tensor.role) {
    case Role::frozen_weight:
    case Role::trainable_weight:
      return Part::weights;
    case Role::gradient:
      return Part::gradients;
    case Role::activation:
      return Part::activations;
    default:
      return Part::states;
  }
}

void add_transfer(const Graph& graph, const Op& op, const DeviceRates& rates, TimedOp& times) {
  const Tensor& target = graph.tensor(offloaded_of(op));
  times.contention = contention_seconds(graph, op, rates);
  times.bytes = static_cast<double>(graph.tensor(copy_of(op)).bytes());
  times.block = op.block;
  times.fetches = rule_of(op.kind).queue == Queue::copy_in;
  times.on_disk = target.space == Space::disk;
  times.part = part_of(target);
  times.seconds = op_seconds(graph, op, rates);
}

BlockShares shares_of(const Graph& graph, const std::vector<StorageLife>& lives,
                      const std::vector<TimedOp>& ops, const std::vector<LossOp>& losses, size_t chunks) {
  std::vector<double> seconds;
  seconds.reserve(ops.size());
  for (const TimedOp& op : ops) seconds.push_back(op.seconds);
  std::vector<LossWorkspace> workspaces;
  for (const LossOp& loss : losses) workspaces.push_back({loss.at, loss.workspace});
  return block_shares_of(graph, lives, seconds, workspaces, chunks);
}

}  // namespace

MeasuredProgram::MeasuredProgram(const Graph& graph, double runs, Samples kind,
                                 const std::vector<int64_t>& chunks, const DeviceDescription& device,
                                 TimeModel& time, bool bounds)
    : tensors_(graph.tensors().size()),
      chunks_(chunks.size()),
      host_copy_(device.rates.host_copy),
      disk_read_(device.rates.disk_read),
      disk_write_(device.rates.disk_write),
      counts_launches_(device.launch_seconds != 0 || device.backend == Backend::gpu) {
  const SampleBlocks samples = blocks_of(graph, kind);
  needs_.runs = runs;
  for (const BlockId block : find_makers(graph)) add(needs_.tensors, int64_t{1}, block, samples.blocks);
  for (const Tensor& tensor : graph.tensors()) {
    if (!is_persistent(tensor.role)) continue;
    ProgramNeeds::Persistent& persistent = needs_.persistent.emplace_back();
    persistent.name = tensor.name;
    persistent.space = tensor.space;
    persistent.block = tensor.block;
    persistent.role = tensor.role;
    persistent.is_piece = tensor.is_piece();
    add(persistent.bytes, round_up(tensor.bytes(), kArenaAlignment), tensor.block, samples.blocks);
    part_of_.push_back(part_of(tensor));
  }
  ops_.reserve(graph.ops().size());
  needs_.moved.resize(graph.blocks().size());
  const TensorKeys keys(graph);
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    TimedOp& times = ops_.emplace_back();
    times.slot = static_cast<uint8_t>(slot_of(op.block, samples.blocks));
    times.queued = is_queued(op);
    if (times.queued) add_transfer(graph, op, device.rates, times);
    if (is_transfer(op.kind))
      times.copy = copy_of(op);
    else
      times.seconds = time.seconds_of(graph, op, keys);
    add(needs_.ops, int64_t{1}, times.slot);
    if (!rule_of(op.kind).chunked) continue;
    LossOp& loss = losses_.emplace_back();
    loss.at = i;
    for (const int64_t chunk : chunks) {
      const Op with = with_rows(op, chunk);
      loss.workspace.push_back(round_up(scratch_bytes_of(graph, with, device), kArenaAlignment));
      loss.seconds.push_back(time.seconds_of(graph, with, keys));
    }
  }
  add_calls(graph, samples, losses_, chunks, device, needs_);
  const std::vector<StorageLife> lives = storage_lives(graph);
  add_lives(graph, lives, samples, losses_, needs_);
  if (bounds) needs_.floor_bytes = floor_of(graph, lives);
  if (bounds && kind == Samples::none) needs_.shares = shares_of(graph, lives, ops_, losses_, chunks_);
  add_transfers(ops_, needs_);
  add_seconds(ops_, needs_);
}

// Adds what transfers move, op by op.
void MeasuredProgram::add_transfers(const std::vector<TimedOp>& ops, ProgramNeeds& needs) const {
  for (const TimedOp& op : ops) {
    if (!op.queued) continue;
    const double on_disk = op.on_disk ? op.bytes : 0.0;
    needs.moves_disk = needs.moves_disk || (op.on_disk && counts_launches_);
    add(needs.disk_traffic, on_disk, op.slot);
    if (op.block == kNoBlock) continue;
    ProgramNeeds::Moved& moved = needs.moved[static_cast<size_t>(op.block)];
    moved.io += op.seconds;
    moved.disk += on_disk;
  }
}

// For each number of rows of logits; `ops` is left with the last one's seconds.
void MeasuredProgram::add_seconds(std::vector<TimedOp>& ops, ProgramNeeds& needs) const {
  std::optional<SecondsTogether> queues;
  for (size_t chunk = 0; chunk < chunks_; ++chunk) {
    for (const LossOp& loss : losses_) ops[loss.at].seconds = loss.seconds[chunk];
    AffineSeconds compute, io;
    for (const TimedOp& op : ops) {
      add(op.queued ? io : compute, op.seconds, op.slot);
      if (op.queued) add(compute, op.contention, op.slot);
    }
    needs.io = io;
    needs.compute.push_back(compute);
    if (io.base > 0 && !queues)
      queues.emplace(ops, tensors_, losses_.empty() ? ops.size() : losses_.front().at);
    needs.together.push_back(queues ? queues->of(ops) : compute);
    if (losses_.empty()) break;  // alike for all
  }
  needs.compute.resize(chunks_, needs.compute.front());
  needs.together.resize(chunks_, needs.together.front());
}

ProgramNeeds MeasuredProgram::with_homes(const OffloadTargets& targets) const {
  const auto offloaded_of = [&](Part part) { return targets[static_cast<size_t>(part)].of(0); };
  ProgramNeeds needs = needs_;
  for (size_t i = 0; i < part_of_.size(); ++i)
    if (needs.persistent[i].space != Space::device) needs.persistent[i].space = offloaded_of(part_of_[i]);
  std::vector<AffineBytes>& on_host = needs.transient[index(Space::host)];
  std::vector<AffineBytes>& on_disk = needs.transient[index(Space::disk)];
  const Space activations = offloaded_of(Part::activations);
  if ((activations == Space::host && on_host.empty()) || (activations == Space::disk && on_disk.empty()))
    std::swap(on_host, on_disk);
  std::vector<TimedOp> ops = ops_;
  for (TimedOp& op : ops) {
    if (!op.queued) continue;
    op.on_disk = offloaded_of(op.part) == Space::disk;
    op.seconds = op.bytes / (op.on_disk ? (op.fetches ? disk_read_ : disk_write_) : host_copy_);
  }
  needs.disk_traffic = {};
  needs.moves_disk = false;
  std::ranges::fill(needs.moved, ProgramNeeds::Moved());
  needs.compute.clear();
  needs.together.clear();
  add_transfers(ops, needs);
  add_seconds(ops, needs);
  return needs;
}

namespace {

bool keeps_nothing(const ProgramNeeds& needs) {
  const auto is_constant = [](const AffineBytes& alive) { return alive.slope == AffineBytes().slope; };
  return std::ranges::all_of(
             needs.transient,
             [&](const auto& of_space) { return std::ranges::all_of(of_space, is_constant); }) &&
         std::ranges::all_of(needs.losses, is_constant, &ProgramNeeds::Loss::alive);
}

}  // namespace

std::optional<ProgramNeeds> in_samples(const ProgramNeeds& mixture, size_t stacks, Samples samples) {
  if (!keeps_nothing(mixture)) return std::nullopt;
  const int64_t blocks = kSampledSegments * segment_size(samples);
  const int64_t more = blocks - kSampledFirst - kSampledRest;
  // Every block of a stack counts as the one in the midst of the mixture's first ones.
  const auto resample = [&]<class Amount>(Affine<Amount>& amount) {
    for (size_t slot = 0; slot < stacks * kSlotsOfStack; slot += kSlotsOfStack) {
      const Amount of_block = amount.slope[slot];
      amount.base += of_block * static_cast<Amount>(more);
      for (size_t i = 0; i < kSlotsOfStack; ++i) amount.slope[slot + i] = of_block;
    }
  };
  ProgramNeeds needs = mixture;
  for (ProgramNeeds::Persistent& tensor : needs.persistent) resample(tensor.bytes);
  for (auto* list : {&needs.compute, &needs.together}) std::ranges::for_each(*list, resample);
  std::ranges::for_each(needs.calls, resample);
  for (AffineBytes* number : {&needs.ops, &needs.tensors}) resample(*number);
  for (AffineSeconds* amount : {&needs.disk_traffic, &needs.io}) resample(*amount);
  needs.in_midst.clear();
  needs.at_end.clear();
  return needs;
}

ProgramNeeds needs_of(const Graph& graph, double runs, Samples samples, const std::vector<int64_t>& chunks,
                      const DeviceDescription& device, TimeModel& time) {
  return MeasuredProgram(graph, runs, samples, chunks, device, time).needs();
}

}  // namespace plimsoll
