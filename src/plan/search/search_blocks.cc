// Bounds of choices of recomputation in models whose layers are measured one by one: by what each block takes at one
// point, before a program of blocks at two points, or of segments, is built (plan/program/block_shares.h).
#include <algorithm>

#include "plan/search/search.h"

namespace plimsoll {
namespace {

// The sums of the micro-step's transfers, by block.
struct Transfers {
  explicit Transfers(const DepthModel& model) {
    for (const DepthModel::OfBlock& block : model.blocks()) {
      io.push_back(block.io.front());
      disk.push_back(block.disk.front());
    }
  }
  std::vector<double> io, disk;
};

}  // namespace

bool Search::has_shares(const Spot& spot) const {
  return !is_deep_ && depths_.size() == 1 && frames_[spot.frame].whole && !spot.split.any() &&
         !request_.choices.recompute;
}

// All layers at one point, in the frame whose copies on the device are alike.
Search::Spot Search::level_of_twin(const Spot& spot, RecomputePoint point) const {
  return {.frame = frames_[spot.frame].twin, .chunk = spot.chunk, .first = point, .rest = point};
}

// The model of all layers at one point, where at most activations move.
const DepthModel& Search::still_model(const Spot& spot, RecomputePoint point) {
  const Frame& frame = frames_[spot.frame];
  return *base_of(frame.capacity, frame.variant.offload, moves_activations(spot.frame), point).model;
}

// The least that a choice computes and moves of activations, as the base of its frame.
Search::Base Search::base_by_blocks(const Spot& spot) {
  const Frame& frame = frames_[spot.frame];
  const OffloadChoice& choice = frame.variant.offload;
  const auto plain = [&](RecomputePoint point) -> const Base& {
    return base_of(frame.capacity, choice, false, point);
  };
  Base base = plain(spot.rest);
  const BlockShares& rest = base.model->shares();
  if (spot.segment > 1) {
    base.seconds.front() += longer_in_segments(rest, spot.segment);
    return base;
  }
  base.seconds.front() +=
      more_between(plain(spot.first).model->shares().compute, rest.compute, spot.first_layers);
  if (!moves_activations(spot.frame)) return base;
  const Base& one = base_of(frame.capacity, choice, true, spot.first);
  const Base& other = base_of(frame.capacity, choice, true, spot.rest);
  const Transfers of_first(*one.model), of_rest(*other.model);
  base.host = std::min(one.host, other.host);
  base.on_disk = std::min(one.on_disk, other.on_disk);
  base.io = other.io;
  base.disk = other.disk;
  base.io.front() += more_between(of_first.io, of_rest.io, spot.first_layers);
  base.disk.front() += more_between(of_first.disk, of_rest.disk, spot.first_layers);
  if (choice.prefetch == 0) base.seconds.front() += base.io.front();  // every transfer is waited for
  return base;
}

bool Search::exceeds_beside(const Spot& spot, int64_t transient, const Limits& limits) {
  const Frame& frame = frames_[spot.frame];
  const Base base = base_by_blocks(spot);
  Least least{.device = transient, .host = base.host, .disk = base.on_disk};
  add_parts(frame.capacity, frame.variant.offload, base, least);
  return exceeds(least, limits);
}

// A place of a line. First by programs that move nothing else: other parts that move only add copies and transfers.
bool Search::exceeds_by_blocks(const Spot& spot, const Limits& limits) {
  if (!has_shares(spot) || !still_model(spot, spot.rest).shares().any()) return false;
  const auto exceeds_by = [&](const DepthModel& first, const DepthModel& rest) {
    return exceeds_beside(spot, alive_between(first.shares(), rest.shares(), spot.first_layers, spot.chunk),
                          limits);
  };
  if (exceeds_by(still_model(spot, spot.first), still_model(spot, spot.rest))) return true;
  const Spot first = level_of_twin(spot, spot.first), rest = level_of_twin(spot, spot.rest);
  return frames_[spot.frame].variant.offload.any() && may_measure(first) && may_measure(rest) &&
         exceeds_by(model_of(first), model_of(rest));
}

// The program of all layers at `block` that moves a frame's weights and nothing else: what it fetches ahead is what
// segments of more layers than that fetch. None where there is no such program, or segments are shorter.
const DepthModel* Search::model_of_weights(const Spot& spot) {
  const Frame& frame = frames_[spot.frame];
  const OffloadChoice& choice = frame.variant.offload;
  const int64_t last = layers_ % spot.segment;
  if (!choice.weights.any() || frame.variant.update_in_backward || spot.segment <= choice.prefetch ||
      (last > 0 && last <= choice.prefetch))
    return nullptr;
  OffloadTargets targets;
  targets[static_cast<size_t>(Part::weights)] = choice.weights;
  Spot of_weights = spot;
  of_weights.frame = frame_of(frame.capacity, targets, choice.prefetch);
  if (frames_[of_weights.frame].variant.update_in_backward) return nullptr;
  of_weights = level_of_twin(of_weights, spot.rest);
  return may_measure(of_weights) ? &model_of(of_weights) : nullptr;
}

// Bytes that gradients that move leave on the device in all of the backward pass; those that stay are persistent.
int64_t Search::across_blocks(const Spot& spot) {
  const Frame& frame = frames_[spot.frame];
  const Capacity& capacity = capacities_[frame.capacity];
  const Space target = frame.variant.offload.gradients.of(0);
  const bool is_copied =
      target == Space::disk || (target == Space::host && !request_.target.device.reaches_host);
  if (!is_copied) return 0;
  const auto [known, is_new] = known_.across.try_emplace(capacity.plain.accumulation > 1);
  if (!is_new) return known->second;
  Variant variant = capacity.plain;
  variant.update_in_backward = false;
  variant.offload.prefetch = 0;
  variant.offload.gradients = target;
  return known->second = model_like(variant, {capacity.chunks.front()}, points_.front()).shares().across;
}

// The program of all layers at a segment's point that moves nothing.
const DepthModel& Search::still_block(const Spot& spot) {
  const Frame& frame = frames_[spot.frame];
  return *base_of(frame.capacity, frame.variant.offload, false, spot.rest).model;
}

// The least that segments take without persistent bytes; 0: unknown. Inputs that move are away while another segment is there.
int64_t Search::alive_in_segments_at(const Spot& spot) {
  if (!has_shares(spot)) return 0;
  const BlockShares& shares = still_block(spot).shares();
  if (!shares.any()) return 0;
  return alive_in_segments(shares, spot.segment, !moves_activations(spot.frame)) + across_blocks(spot);
}

bool Search::exceeds_by_segments(const Spot& spot, const Limits& limits) {
  if (!has_shares(spot)) return false;
  if (!still_block(spot).shares().any()) return false;
  if (exceeds_beside(spot, alive_in_segments_at(spot), limits)) return true;
  const DepthModel* const weights = model_of_weights(spot);
  if (weights == nullptr) return false;
  const int64_t alive = alive_in_segments(weights->shares(), spot.segment, !moves_activations(spot.frame));
  return exceeds_beside(spot, alive + across_blocks(spot), limits);
}

bool Search::is_line_beyond(const Spot& line, const DepthModel& first, const DepthModel& rest,
                            const Limits& limits) {
  const Frame& frame = frames_[line.frame];
  // First by bytes alone, which most places exceed.
  Least parts;
  add_parts(frame.capacity, frame.variant.offload,
            base_of(frame.capacity, frame.variant.offload, false, line.rest), parts);
  parts.seconds = 0;
  Spot spot = line;
  for (spot.first_layers = 1; spot.first_layers < layers_; ++spot.first_layers) {
    const int64_t alive = alive_between(first.shares(), rest.shares(), spot.first_layers, spot.chunk);
    Least least = parts;
    least.device += alive;
    if (!exceeds(least, limits) && !exceeds_beside(spot, alive, limits)) return false;
  }
  return true;
}

// Returns whether no place of a line between its ends keeps the limits: first by what moves nothing else.
bool Search::is_line_beyond(const Spot& line, const Limits& limits) {
  if (!has_shares(line) || !still_model(line, line.rest).shares().any()) return false;
  if (is_line_beyond(line, still_model(line, line.first), still_model(line, line.rest), limits)) return true;
  const Spot first = level_of_twin(line, line.first), rest = level_of_twin(line, line.rest);
  return frames_[line.frame].variant.offload.any() && may_measure(first) && may_measure(rest) &&
         is_line_beyond(line, model_of(first), model_of(rest), limits);
}

}  // namespace plimsoll
