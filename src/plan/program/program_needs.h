// The needs of one program, measured op by op on a program of few blocks: bytes, numbers and seconds that
// grow with the blocks of each stack (depth_model.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "device/description.h"
#include "graph/graph.h"
#include "passes/offload.h"
#include "plan/program/block_shares.h"
#include "plan/program/graphs.h"
#include "plan/program/time_model.h"

namespace plimsoll {

// A stack has a slot for each way in which its blocks count.
inline constexpr size_t kSlotsOfStack = 3;
inline constexpr size_t kMostStacks = 2;
inline constexpr size_t kSlots = kMostStacks * kSlotsOfStack;
using More = std::array<int64_t, kSlots>;

// base + slope[i] * (what there is more of slot i than was measured).
template <class Amount>
struct Affine {
  Amount base{};
  std::array<Amount, kSlots> slope{};

  [[nodiscard]] Amount at(const More& more) const {
    Amount amount = base;
    for (size_t i = 0; i < kSlots; ++i) amount += slope[i] * static_cast<Amount>(more[i]);
    return amount;
  }
  void add(const Affine& amount, Amount times) {
    base += amount.base * times;
    for (size_t i = 0; i < kSlots; ++i) slope[i] += amount.slope[i] * times;
  }
};
using AffineBytes = Affine<int64_t>;
using AffineSeconds = Affine<double>;  // and whatever else is an average

// The bytes that are alive op by op, as (what else is alive grows) -> the most.
class Largest {
 public:
  void take(const AffineBytes& alive) {
    // From op to op it seldom changes what grows.
    if (latest_ >= largest_.size() || largest_[latest_].slope != alive.slope) {
      const auto place = std::ranges::lower_bound(largest_, alive.slope, {}, &AffineBytes::slope);
      latest_ = static_cast<size_t>(place - largest_.begin());
      if (place == largest_.end() || place->slope != alive.slope) largest_.insert(place, alive);
    }
    int64_t& base = largest_[latest_].base;
    base = std::max(base, alive.base);
  }
  [[nodiscard]] const std::vector<AffineBytes>& list() const { return largest_; }

 private:
  std::vector<AffineBytes> largest_;  // ascending by slope
  size_t latest_ = 0;
};

// The blocks of a measured program that stand for others: none; in each stack of kSampledFirst + kSampledRest
// blocks, one in the midst of the first and one in the midst of the rest; in each stack of kSampledSegments
// segments of kSampledSegment blocks, or of two, those of the midst.
enum class Samples : uint8_t { none, mixture, segments, pairs };
inline constexpr int64_t kSampledFirst = 3;
inline constexpr int64_t kSampledRest = 3;
inline constexpr int64_t kSampledSegment = 3;
inline constexpr int64_t kSampledSegments = 3;
constexpr bool is_in_segments(Samples samples) {
  return samples == Samples::segments || samples == Samples::pairs;
}
// The blocks of each measured segment.
constexpr int64_t segment_size(Samples samples) { return samples == Samples::pairs ? 2 : kSampledSegment; }

// The needs of a program: persistent tensors, transient bytes alive together (the largest counts), time. Rows
// of logits at a time are counted by their index in the list that was measured.
struct ProgramNeeds {
  struct Persistent {
    Name name;
    Space space = Space::device;
    BlockId block = kNoBlock;
    AffineBytes bytes;
    Role role = Role::frozen_weight;
    bool is_piece = false;
  };
  struct Loss {  // an op of the loss: what is alive but for its workspace, which goes by the rows
    AffineBytes alive;
    std::vector<int64_t> workspace;
  };
  double runs = 0;  // in an optimizer step, on average
  ProgramUse use;
  bool moves_disk = false;
  std::vector<AffineBytes> calls;  // by rows: what a host launches, where that counts
  std::vector<Persistent> persistent;
  std::array<std::vector<AffineBytes>, 3> transient;  // by space
  std::vector<Loss> losses;
  // A mixture's transient bytes of the device at ops of two blocks of its first stack: the last of the first ones, which
  // is in the midst of a model, and the very last.
  std::vector<AffineBytes> in_midst, at_end;
  // Bytes of the device, alive together however much is made again or fetched; 0: unknown.
  int64_t floor_bytes = 0;
  AffineBytes ops, tensors;             // numbers of them
  AffineSeconds disk_traffic;           // bytes
  std::vector<AffineSeconds> compute;   // by rows: what the compute queue does
  std::vector<AffineSeconds> together;  // by rows: both queues, with what waits for what
  AffineSeconds io;
  // Seconds of transfers and bytes of the disk that each block moves.
  struct Moved {
    double io = 0, disk = 0;
  };
  std::vector<Moved> moved;
  BlockShares shares;  // of a micro-step that was measured as it is; none: unknown
};

// A program's needs as they were measured, from which those of the same program with other offload targets follow:
// copies on the device are alike wherever they come from, so that only places, traffic and seconds of transfers change.
class MeasuredProgram {
 public:
  // `runs`: in an optimizer step. Every stack of the graph has the blocks that `samples` says. For losses, the
  // workspace and the seconds at each of `chunks` rows of logits. `bounds`: also what bounds other programs, its floor and
  // its blocks' shares.
  MeasuredProgram(const Graph& graph, double runs, Samples samples, const std::vector<int64_t>& chunks,
                  const DeviceDescription& device, TimeModel& time, bool bounds = true);

  [[nodiscard]] const ProgramNeeds& needs() const { return needs_; }
  void set_use(const ProgramUse& use) { needs_.use = use; }
  // With each part that moves in one offload target, as before: another one, which the device does not reach either.
  [[nodiscard]] ProgramNeeds with_homes(const OffloadTargets& targets) const;

  // An op as the queues get it, for one number of rows at a time.
  struct TimedOp {
    double seconds = 0;         // on its queue
    double contention = 0;      // of a transfer: what it takes from the compute queue
    double bytes = 0;           // of a transfer
    TensorId copy = kNoTensor;  // of transfers and waits
    BlockId block = kNoBlock;   // of transfers
    uint8_t slot = kSlots;
    bool queued = false;
    bool fetches = false;
    bool on_disk = false;      // its offload target
    Part part = Part::states;  // of a transfer: what it moves
  };
  struct LossOp {
    size_t at = 0;
    std::vector<int64_t> workspace;  // by rows of logits at a time
    std::vector<double> seconds;     // likewise
  };

 private:
  void add_transfers(const std::vector<TimedOp>& ops, ProgramNeeds& needs) const;
  void add_seconds(std::vector<TimedOp>& ops, ProgramNeeds& needs) const;

  ProgramNeeds needs_;
  std::vector<TimedOp> ops_;
  std::vector<LossOp> losses_;
  std::vector<Part> part_of_;  // of each persistent tensor; of those that no offload target is for, any
  size_t tensors_ = 0, chunks_ = 1;
  double host_copy_, disk_read_, disk_write_;  // bytes a second
  bool counts_launches_;
};

// The needs that the same program would have with other samples, by those that were measured with a mixture's. None: its blocks
// keep something for each other, as those of a backward pass do, and what they keep goes by the samples.
std::optional<ProgramNeeds> in_samples(const ProgramNeeds& mixture, size_t stacks, Samples samples);

ProgramNeeds needs_of(const Graph& graph, double runs, Samples samples, const std::vector<int64_t>& chunks,
                      const DeviceDescription& device, TimeModel& time);

}  // namespace plimsoll
