// Places of parts in the search: what they take at the least, by sums.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/units.h"
#include "plan/search/places.h"
#include "plan/search/search.h"

namespace plimsoll {
namespace {

// A deeper prefetch is looked at where it may save so much of a step.
constexpr double kWorthPrefetch = 0.002;
constexpr std::array<Part, 3> kPersistentParts = {Part::states, Part::gradients, Part::weights};

const PartTarget& target_of_part(const OffloadTargets& targets, Part part) {
  return targets[static_cast<size_t>(part)];
}

// Sets what a base (Search::Base) takes of the usage of its programs whatever the rows of logits are; its seconds are the
// caller's.
template <class Base>
void take_usage(const Usage& usage, Base& base) {
  base.host = usage.of(Space::host) - usage.persistent[index(Space::host)];
  base.on_disk = usage.of(Space::disk) - usage.persistent[index(Space::disk)];
  base.programs = usage.program_bytes;
  base.persistent = usage.persistent;
  base.io = usage.io;
  base.disk = usage.disk;
  for (size_t i = 0; i < base.runs.size(); ++i) base.runs[i] = usage.runs[i].runs;
}

}  // namespace

OffloadTargets Search::targets_of(const Spot& spot) const {
  OffloadTargets targets = frames_[spot.frame].variant.offload.targets();
  if (spot.split.any()) targets[static_cast<size_t>(spot.split.part)] = spot.target;
  return targets;
}

Variant Search::variant_of(const Spot& spot) const {
  Variant variant = frames_[spot.frame].variant;
  if (!spot.split.any()) return variant;
  variant.offload.of(spot.split.part) = spot.target;
  variant.update_in_backward = may_update_in_backward(variant.accumulation, variant.offload);
  return variant;
}

OffloadChoice Search::choice_with(size_t frame, const Split& split, const PartTarget& target) const {
  OffloadChoice choice = frames_[frame].variant.offload;
  if (split.any()) choice.of(split.part) = target;
  return choice;
}

size_t Search::frame_of(size_t capacity, const OffloadTargets& targets, int64_t prefetch) const {
  return capacities_[capacity].begin + known_.place_of.at({targets, prefetch});
}

bool Search::updates_in_backward(size_t capacity, const OffloadChoice& choice) const {
  return may_update_in_backward(capacities_[capacity].plain.accumulation, choice);
}

// Layers whose gradients are no tensors of their own predict nothing of layers whose gradients are.
bool Search::is_stretched(const Spot& spot) const {
  if (!is_deep_ && !(known_.has_many_layers && spot.split.any())) return false;
  const Frame& frame = frames_[spot.frame];
  if (frame.whole && !spot.split.any()) return false;
  const bool whole_gradients =
      frame.variant.offload.gradients.is_whole() && !(spot.split.any() && spot.split.part == Part::gradients);
  return whole_gradients || !capacities_[frame.capacity].plain.update_in_backward;
}

std::vector<Search::Stretch> Search::stretches_of(const Spot& spot) {
  const Frame& frame = frames_[spot.frame];
  const OffloadTargets targets = targets_of(spot);
  std::set<int64_t> cuts = {0, layers_};
  double outside = 0;
  for (const Part part : kEveryPart) {
    const PartTarget& target = target_of_part(targets, part);
    if (target.is_whole()) continue;
    for (const int64_t cut : {target.on_disk, target.moved()})
      if (cut < layers_) cuts.insert(cut);
    const OffloadCosts& costs =
        costs_of(frame.capacity, updates_in_backward(frame.capacity, frame.variant.offload));
    outside = std::max(outside, costs.outside(part, request_.target.targets.front()));
  }
  std::vector<Stretch> stretches;
  for (auto cut = cuts.begin(); *cut < layers_; ++cut) {
    OffloadTargets whole;
    for (size_t part = 0; part < whole.size(); ++part)
      whole[part] = targets[part].of(static_cast<BlockId>(*cut));
    const auto layers = static_cast<double>(*std::next(cut) - *cut);
    stretches.push_back({frame_of(frame.capacity, whole, frame.variant.offload.prefetch),
                         (1 - outside) * layers / static_cast<double>(layers_)});
  }
  stretches.back().share += outside;
  return stretches;
}

// Seconds are those of each stretch's share of its frame. Copies on the device are those of the stretch that
// has most of them; activations wait side by side.
Usage Search::of_stretches(const Spot& spot) {
  const OffloadTargets targets = targets_of(spot);
  const bool shares_transient = !target_of_part(targets, Part::activations).is_whole();
  Usage usage;
  std::array<double, 3> transient{};
  double ops = 0, programs = 0, traffic = 0;
  std::array<double, 3> calls{};
  for (const Stretch& stretch : stretches_of(spot)) {
    Spot whole = spot;
    whole.frame = stretch.frame;
    whole.split = {};
    whole.target = {};
    const Usage of_whole = bytes_and_seconds(whole);
    usage.seconds += stretch.share * of_whole.seconds;
    ops += stretch.share * static_cast<double>(of_whole.ops);
    programs += stretch.share * static_cast<double>(of_whole.program_bytes);
    traffic += stretch.share * static_cast<double>(of_whole.disk_traffic);
    for (size_t space = 0; space < transient.size(); ++space) {
      const auto bytes = static_cast<double>(of_whole.bytes[space] - of_whole.persistent[space]);
      transient[space] =
          shares_transient ? transient[space] + stretch.share * bytes : std::max(transient[space], bytes);
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      const double before = usage.runs[i].seconds;
      usage.runs[i] = of_whole.runs[i];
      usage.runs[i].seconds = before + stretch.share * of_whole.runs[i].seconds;
      calls[i] += stretch.share * static_cast<double>(of_whole.runs[i].calls.calls);
    }
  }
  for (size_t i = 0; i < calls.size(); ++i) usage.runs[i].calls.calls = std::llround(calls[i]);
  usage.ops = std::llround(ops);
  usage.program_bytes = std::llround(programs);
  usage.disk_traffic = std::llround(traffic);
  const size_t capacity = frames_[spot.frame].capacity;
  OffloadChoice choice = frames_[spot.frame].variant.offload;
  choice.set_targets(targets);
  const Base& base = base_of(capacity, choice, false, points_.front());
  Least least;
  add_parts(capacity, choice, base, least);
  usage.persistent = {least.device, least.host, least.disk};
  for (size_t space = 0; space < transient.size(); ++space)
    usage.bytes[space] = usage.persistent[space] + std::llround(transient[space]);
  return usage;
}

const DepthModel& Search::model_like(Variant variant, const std::vector<int64_t>& chunks,
                                     RecomputePoint point) {
  if (is_deep_)
    return DepthModel::mixture(programs_, variant, chunks,
                               std::vector<StackPoints>(depths_.size(), {point, point}));
  variant.recompute = choice_of({.first = point, .rest = point});
  return DepthModel::exact(programs_, variant, chunks);
}

Usage Search::usage_like(const DepthModel& model, size_t chunk) const {
  if (!is_deep_) return model.at(chunk);
  std::vector<StackDepth> stacks;
  for (const int64_t depth : depths_) stacks.push_back({depth, depth});
  return model.at(stacks, chunk);
}

const Search::Base& Search::base_of(size_t capacity, const OffloadChoice& choice, bool moves_activations,
                                    RecomputePoint point) {
  const bool updates = updates_in_backward(capacity, choice);
  const Space target = moves_activations ? choice.activations.of(0) : Space::device;
  const int64_t prefetch = target == Space::device ? 1 : choice.prefetch;
  const auto [known, is_new] = known_.bases.try_emplace({capacity, updates, point, target, prefetch});
  Base& base = known->second;
  if (!is_new) return base;
  Variant variant = capacities_[capacity].plain;
  variant.update_in_backward = updates;
  variant.offload.activations = target;
  variant.offload.prefetch = prefetch;
  const std::vector<int64_t>& chunks = capacities_[capacity].chunks;
  const DepthModel& model = model_like(variant, chunks, point);
  base.model = &model;
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    const Usage usage = usage_like(model, chunk);
    base.transient.push_back(usage.of(Space::device) - usage.persistent[index(Space::device)]);
    take_usage(usage, base);
    for (size_t i = 0; i < base.seconds.size(); ++i)
      base.seconds[i] = chunk == 0 ? usage.runs[i].seconds : std::min(base.seconds[i], usage.runs[i].seconds);
  }
  const DepthModel::Floor floor = is_deep_ ? model.floor_of_ops(depths_) : model.floor();
  base.floor = floor.device - base.persistent[index(Space::device)];
  return base;
}

const OffloadCosts& Search::costs_of(size_t capacity, bool updates) {
  const Capacity& of_capacity = capacities_[capacity];
  const auto [known, is_new] = known_.costs.try_emplace({of_capacity.plain.accumulation > 1, updates});
  OffloadCosts& costs = known->second;
  if (!is_new) return costs;
  Variant variant = of_capacity.plain;
  variant.update_in_backward = updates;
  variant.offload.prefetch = 0;
  const std::vector<int64_t> chunks = {of_capacity.chunks.front()};
  const auto blocks = [&](const DepthModel& model) {
    return is_deep_ ? model.blocks(depths_) : model.blocks();
  };
  const DepthModel& plain = model_like(variant, chunks, points_.front());
  for (const Part part : kPersistentParts) {
    if (part == Part::gradients && updates) continue;
    for (const Space target : request_.target.targets) {
      Variant with = variant;
      with.offload.of(part) = target;
      const DepthModel& moved = model_like(with, chunks, points_.front());
      costs.set(part, target, usage_like(plain, 0), blocks(plain), usage_like(moved, 0), blocks(moved));
    }
  }
  return costs;
}

// Persistent bytes, and what transfers take at the least with the base's computing.
void Search::add_parts(size_t capacity, const OffloadChoice& choice, const Base& base, Least& least) {
  least.device += base.persistent[index(Space::device)];
  least.programs = base.programs;
  std::array<double, 3> io{}, disk{};
  if (choice.any()) {
    const OffloadCosts& costs = costs_of(capacity, updates_in_backward(capacity, choice));
    for (const Part part : kPersistentParts) {
      if (!choice.of(part).any()) continue;
      for (const Space target : request_.target.targets) {
        const OffloadCosts::Amount amount = costs.of(part, target, choice.of(part));
        least.device -= amount.freed;
        (target == Space::disk ? least.disk : least.host) += amount.taken;
        for (size_t i = 0; i < io.size(); ++i) {
          io[i] += amount.io[i];
          disk[i] += amount.disk[i];
        }
      }
    }
  }
  double traffic = 0;
  for (size_t i = 0; i < io.size(); ++i) {
    traffic += base.runs[i] * (base.disk[i] + disk[i]);
    least.seconds += base.runs[i] * (choice.prefetch == 0 ? base.seconds[i] + io[i]
                                                          : std::max(base.seconds[i], base.io[i] + io[i]));
  }
  // Sums of the same in another order differ in their last digits.
  least.disk_traffic = static_cast<int64_t>(traffic * (1 - 1e-9));
  least.seconds *= 1 - 1e-9;
}

Search::Least Search::least_of(size_t capacity, const OffloadChoice& choice) {
  Least least;
  const Base& base = base_of(capacity, choice, false, points_.front());
  least.device = base.floor;
  add_parts(capacity, choice, base, least);
  return least;
}

// Copies on the device are alike wherever they come from: those of the twin, whose moved parts have one offload target.
int64_t Search::transient_at(Spot spot) {
  spot.frame = frames_[spot.frame].twin;
  if (!may_measure(spot)) return 0;
  const Usage usage = bytes_and_seconds(spot);
  return usage.of(Space::device) - usage.persistent[index(Space::device)];
}

Search::Least Search::least_at(const Spot& spot, bool by_point) {
  return least_at(spot, frames_[spot.frame].variant.offload, by_point);
}

// Activations that move count as they do in their place.
Search::Least Search::least_at(const Spot& spot, const OffloadChoice& choice, bool by_point) {
  const Frame& frame = frames_[spot.frame];
  const bool at_point = spot.segment == 1 && spot.first == spot.rest;
  const bool knows_activations = at_point && choice.activations.is_whole();
  const Base& base = base_of(frame.capacity, choice, knows_activations, at_point ? spot.first : spot.rest);
  Least least;
  if (knows_activations) {
    least.host = base.host;
    least.disk = base.on_disk;
  }
  const size_t plain = frame_of(frame.capacity, OffloadTargets{}, prefetches().front());
  if (by_point || spot.segment == 1 ||
      frames_[plain].variant.update_in_backward != frame.variant.update_in_backward) {
    add_parts(frame.capacity, choice, base, least);
    return least;
  }
  // The frame that moves nothing says what segments compute.
  Spot still = spot;
  still.frame = plain;
  Base of_segments = base;
  if (may_measure(still)) {
    const Usage usage = bytes_and_seconds(still);
    for (size_t i = 0; i < of_segments.seconds.size(); ++i) of_segments.seconds[i] = usage.runs[i].seconds;
  }
  add_parts(frame.capacity, choice, of_segments, least);
  return least;
}

// Other parts that move only add copies to what is on the device of a program that moves nothing, or activations alone.
int64_t Search::least_transient_at(const Spot& spot) {
  const Frame& frame = frames_[spot.frame];
  const OffloadChoice& choice = frame.variant.offload;
  if (spot.segment > 1) return alive_in_segments_at(spot);
  if (!choice.activations.is_whole() || spot.first != spot.rest) return 0;
  return base_of(frame.capacity, choice, true, spot.first).transient[spot.chunk];
}

// By the frame that moves a spot's activations as it does, and nothing else: other parts that move only add copies and
// transfers. Measured once for all frames that move other parts, where every choice of recomputation is measured.
bool Search::exceeds_by_still(const Spot& spot, const Limits& limits) {
  const Frame& frame = frames_[spot.frame];
  const OffloadChoice& choice = frame.variant.offload;
  if (is_deep_ || !frame.whole) return false;
  OffloadTargets targets;
  targets[static_cast<size_t>(Part::activations)] = choice.activations;
  Spot still = spot;
  still.frame =
      frame_of(frame.capacity, targets, choice.activations.any() ? choice.prefetch : prefetches().front());
  const bool is_like_it = frames_[still.frame].variant.update_in_backward == frame.variant.update_in_backward;
  if (still.frame == spot.frame || !is_like_it || !may_measure(still)) return false;
  const Usage usage = bytes_and_seconds(still);
  Base base;
  take_usage(usage, base);
  for (size_t i = 0; i < base.seconds.size(); ++i) base.seconds[i] = usage.runs[i].seconds;
  Least least{.device = usage.of(Space::device) - usage.persistent[index(Space::device)],
              .host = base.host,
              .disk = base.on_disk};
  add_parts(frame.capacity, choice, base, least);
  return exceeds(least, limits);
}

// A frame that starts transfers two layers ahead, by what is known of one layer ahead: copies are there for longer, and both
// queues have as much to do.
bool Search::exceeds_by_sooner(const Spot& spot, const Limits& limits) {
  const Frame& frame = frames_[spot.frame];
  const OffloadChoice& choice = frame.variant.offload;
  if (is_deep_ || !frame.whole || spot.split.any() || choice.prefetch < 2 || request_.choices.prefetch)
    return false;
  Spot sooner = spot;
  sooner.frame = frame_of(frame.capacity, choice.targets(), 1);
  if (!is_known(sooner)) return false;
  const Usage usage = bytes_and_seconds(sooner);
  // Sums of the same in another order differ in their last digits.
  return exceeds({.device = usage.of(Space::device),
                  .host = usage.of(Space::host),
                  .disk = usage.of(Space::disk),
                  .programs = usage.program_bytes,
                  .disk_traffic = usage.disk_traffic,
                  .seconds = usage.busy * (1 - 1e-9)},
                 limits);
}

// By what a frame takes at the least, before the spot is measured.
bool Search::may_be_by_sums(const Spot& spot, const Limits& limits) {
  // Segments compute no less than their point does in each layer by itself.
  if (spot.segment > 1 && (exceeds(least_at(spot, true), limits) || exceeds_by_segments(spot, limits)))
    return false;
  Least least = least_at(spot, limits.is_open());
  if (exceeds(least, limits)) return false;
  if (!frames_[spot.frame].whole) return true;
  Least before_measuring = least;
  before_measuring.device += least_transient_at(spot);
  if (exceeds(before_measuring, limits)) return false;
  if (spot.segment > 1 && !limits.is_open() && exceeds_by_still(spot, limits)) return false;
  return !exceeds_by_sooner(spot, limits);
}

// The same, and by a spot's device bytes exactly.
bool Search::may_be_at(const Spot& spot, const Limits& limits) {
  if (!may_be_by_sums(spot, limits)) return false;
  if (!frames_[spot.frame].whole) return true;
  Least least = least_at(spot, limits.is_open());
  least.device += transient_at(spot);
  return !exceeds(least, limits);
}

// A mixture of two points in few layers, or in layers that differ, may take less of the device than all layers at either
// point, and where activations move less time. Known are the floor of every point and, where they stay, that
// recomputation only adds to what computes.
bool Search::may_be_between_few(const Spot& less, const Limits& limits) {
  const Frame& frame = frames_[less.frame];
  if (!frame.whole || moves_activations(less.frame)) return true;
  Least least = least_at(less);
  least.device += base_of(frame.capacity, frame.variant.offload, false, points_.front()).floor;
  return !exceeds(least, limits);
}

// The base of a line has the least of two points: what computes at the one, what moves at the other. Layers at both points
// may wait for transfers less than at the one and compute less than at the other.
Search::Base Search::base_between(const Spot& less, const Spot& more) {
  const Frame& frame = frames_[less.frame];
  const OffloadChoice& choice = frame.variant.offload;
  Base between = base_of(frame.capacity, choice, false, less.first);
  if (!moves_activations(less.frame)) return between;
  const Base& one = base_of(frame.capacity, choice, true, less.first);
  const Base& other = base_of(frame.capacity, choice, true, more.first);
  between.host = std::min(one.host, other.host);
  between.on_disk = std::min(one.on_disk, other.on_disk);
  for (size_t i = 0; i < between.io.size(); ++i) {
    between.io[i] = std::min(one.io[i], other.io[i]);
    between.disk[i] = std::min(one.disk[i], other.disk[i]);
  }
  return between;
}

// Less recomputation is faster, more is smaller, and a place between may keep both limits where neither end does.
bool Search::may_be_between(const Spot& less, const Spot& more, const Limits& limits) {
  if (!is_deep_) return may_be_between_few(less, limits);
  const Frame& frame = frames_[less.frame];
  const Base base = base_between(less, more);
  Least least{.host = base.host, .disk = base.on_disk};
  add_parts(frame.capacity, frame.variant.offload, base, least);
  const auto exceeds_beside = [&](int64_t transient) {
    Least with = least;
    with.device += transient;
    return exceeds(with, limits);
  };
  if (exceeds_beside(base_of(frame.capacity, frame.variant.offload, false, points_.front()).floor))
    return false;
  if (!frame.whole || depths_.size() > 1) return true;
  const auto between = [&](const DepthModel& of_less, const DepthModel& of_more) {
    return DepthModel::transient_between(of_more, of_less, layers_, less.chunk);
  };
  // Other parts that move only add copies: first by a program that moves activations alone.
  const auto of_activations = [&](RecomputePoint point) -> const DepthModel& {
    return *base_of(frame.capacity, frame.variant.offload, true, point).model;
  };
  if (exceeds_beside(between(of_activations(less.first), of_activations(more.first)))) return false;
  const auto twin = [&](Spot spot) {
    spot.frame = frame.twin;
    return spot;
  };
  if (!may_measure(twin(less)) || !may_measure(twin(more))) return true;
  return !exceeds_beside(between(model_of(twin(less)), model_of(twin(more))));
}

std::optional<Search::Least> Search::least_of(const Variant& variant) {
  for (size_t capacity = 0; capacity < capacities_.size(); ++capacity) {
    const Variant& plain = capacities_[capacity].plain;
    if (plain.micro_batch == variant.micro_batch && plain.micro_tokens == variant.micro_tokens)
      return least_of(capacity, variant.offload);
  }
  return std::nullopt;
}

// The bytes that `limits.bytes` is of. Ties are decided by a variant's own, without what the process is before it.
int64_t Search::counted(const Least& least, const Limits& limits) const {
  const int64_t variant = least.device + least.host + least.programs;
  if (limits.of_ties) return variant;
  if (counts_device_alone(limits.budget)) return least.device;
  const int64_t files = limits.budget.disk_in_memory ? least.disk + request_.choices.kept_bytes : 0;
  return variant + request_.target.host.total() + files;
}

bool Search::exceeds(const Least& least, const Limits& limits) const {
  const int64_t host = least.host + least.programs + request_.target.host.total();
  const Budget& budget = limits.budget;
  if (!keeps(least.device, budget.device_bytes) || !keeps(host, budget.host_bytes) ||
      !keeps(least.disk + request_.choices.kept_bytes, budget.disk_bytes) ||
      !keeps(least.device + host, budget.process_bytes) || least.seconds >= limits.seconds)
    return true;
  if (counted(least, limits) >= limits.bytes) return true;
  if (!limits.preferred) return false;
  const auto& [traffic, on_host] = *limits.preferred;
  return least.disk_traffic > traffic || (least.disk_traffic == traffic && least.host > on_host);
}

std::vector<Search::Entry> Search::entries_of(size_t capacity, const Limits& limits) {
  std::vector<Entry> entries;
  const auto add = [&](const Entry& entry) {
    if (!exceeds(entry.least, limits)) entries.push_back(entry);
  };
  for (size_t frame = capacities_[capacity].begin; frame < capacities_[capacity].end; ++frame) {
    const Variant& variant = frames_[frame].variant;
    if (frames_[frame].offered && may_be_among(frame, limits))
      add({frame, {}, least_of(capacity, variant.offload)});
    if (limits.on_device) continue;
    if (limits.moves_no_more_than && !may_be_among(frame, limits)) continue;
    for (const Split& split : splits_of(frame))
      if (!is_pointless(frame, split, limits)) add({frame, split, least_of_split(frame, split, limits)});
  }
  const auto rank = [&](const Entry& entry) -> std::tuple<double, double, int64_t> {
    const Least& least = entry.least;
    if (!limits.smallest_first) return {least.seconds, 0, 0};
    if (limits.of_ties)
      return {static_cast<double>(least.disk_traffic), static_cast<double>(least.host), least.device};
    return {static_cast<double>(least.device), least.seconds, 0};
  };
  std::ranges::stable_sort(entries, [&](const Entry& a, const Entry& b) { return rank(a) < rank(b); });
  return entries;
}

// Returns whether what waits for transfers one layer ahead leaves something to gain.
bool Search::gains_by_prefetch(const Spot& spot) {
  const Frame& frame = frames_[spot.frame];
  const OffloadChoice& choice = frame.variant.offload;
  if (choice.prefetch < 2 || request_.choices.prefetch) return true;
  Spot sooner = spot;
  sooner.frame = frame_of(frame.capacity, choice.targets(), 1);
  return least_seconds_at(sooner) * (1 - kWorthPrefetch) > least_at(spot).seconds;
}

}  // namespace plimsoll
