// The space that the search goes through: what may be cut how.
#include <algorithm>
#include <limits>
#include <set>

#include "base/units.h"
#include "models/model.h"
#include "ops/optimizer/optimizer.h"
#include "plan/search/micro_capacities.h"
#include "plan/search/search.h"

namespace plimsoll {
namespace {

constexpr int64_t kLeastChunk = 16;  // rows of logits: fewer save next to nothing
// Slices of an update: more of them cost planning time and save little compared with the weights.
constexpr int64_t kMostSlices = 2048;
// Deeper models are cut into as many different numbers of segments, each as evenly as it goes.
constexpr int64_t kEverySegment = 32;

// Rows of logits at a time: the usual number and the powers of two below it.
std::vector<int64_t> chunks_of(const PlanRequest& request, const MicroCapacity& capacity) {
  if (request.choices.loss_chunk) return {*request.choices.loss_chunk};
  const int64_t usual =
      default_loss_chunk(request.workload.experiment, request.workload.experiment.logit_rows(capacity));
  std::vector<int64_t> chunks = {usual};
  if (rule_of(request.workload.experiment.task.task).scores) return chunks;  // there are no logits
  for (int64_t chunk = 512; chunk >= kLeastChunk; chunk /= 2)
    if (chunk < usual) chunks.push_back(chunk);
  return chunks;
}

}  // namespace

Search::Search(const PlanRequest& request, int64_t most_ops)
    : request_(request),
      most_ops_(most_ops),
      layers_(request.workload.experiment.model.layers),
      depths_(request.workload.experiment.model.stacks()),
      is_deep_(is_deep(request.workload.experiment)),
      programs_(
          request.workload.experiment, request.target.device,
          [&request](const Variant& v) {
            return filling_of(request.workload.experiment, request.workload.run, v);
          },
          request.measured, request.target.targets.size() > 1, request.target.layout.node_copy) {
  if (const auto& stated = request.choices.recompute) {
    points_ = {std::min(stated->first, stated->rest)};
  } else {
    for (int i = 0; i < kNumRecomputePoints; ++i) points_.push_back(static_cast<RecomputePoint>(i));
  }
  known_.has_many_layers = has_many_layers(request.workload.experiment);
  for (const MicroCapacity& capacity : micro_capacities(request))
    capacities_.push_back(capacity_of(capacity));
  std::ranges::stable_sort(capacities_, {}, &Capacity::at_least);
  add_choices();
  for (Capacity& capacity : capacities_) add_frames(capacity);
  find_capacities_without_less();
}

// Every offload target for every part: first those of one offload target, of few parts first.
std::vector<OffloadTargets> Search::all_targets() const {
  std::vector<OffloadTargets> all = {OffloadTargets{}};
  const auto targets_in = [](Space target, unsigned mask) {
    OffloadTargets targets;
    for (size_t part = 0; part < targets.size(); ++part)
      if ((mask >> part & 1U) != 0) targets[part] = target;
    return targets;
  };
  for (const Space target : request_.target.targets)
    for (unsigned mask = 1; mask < 16; ++mask) all.push_back(targets_in(target, mask));
  if (request_.target.targets.size() < 2) return all;
  for (unsigned moved = 1; moved < 16; ++moved)
    for (unsigned on_disk = 1; on_disk < moved; ++on_disk) {
      if ((on_disk & ~moved) != 0) continue;
      OffloadTargets targets = targets_in(Space::host, moved);
      for (size_t part = 0; part < targets.size(); ++part)
        if ((on_disk >> part & 1U) != 0) targets[part] = Space::disk;
      all.push_back(targets);
    }
  return all;
}

// One layer ahead comes first, as it hides most; nothing ahead takes the least memory.
std::vector<int64_t> Search::prefetches() const {
  if (request_.choices.prefetch) return {*request_.choices.prefetch};
  return {1, 0, 2};
}

bool Search::may_offer(const OffloadChoice& choice) const {
  if (!choice.any() && choice.prefetch != prefetches().front()) return false;  // it makes no difference
  if (request_.choices.targets) return choice.targets() == *request_.choices.targets;
  if (!request_.choices.offload || request_.target.targets.empty()) return true;
  const OffloadParts& parts = *request_.choices.offload;
  return choice.states.any() == parts.states && choice.gradients.any() == parts.gradients &&
         choice.weights.any() == parts.weights && choice.activations.any() == parts.activations;
}

// Choices of each capacity: what may be chosen, and parts in one place each, which predict several places.
void Search::add_choices() {
  const int64_t slice =
      round_up(ceil_div(count_parameters(request_.workload.experiment.model), kMostSlices), kSliceUnit);
  std::vector<OffloadTargets> all = all_targets();
  if (request_.choices.targets && std::ranges::find(all, *request_.choices.targets) == all.end())
    all.push_back(*request_.choices.targets);
  for (const int64_t prefetch : prefetches()) {
    for (const OffloadTargets& targets : all) {
      OffloadChoice choice;
      choice.set_targets(targets);
      choice.prefetch = prefetch;
      choice.slice_elements = std::max(choice.slice_elements, slice);
      known_.place_of.emplace(std::pair(targets, prefetch), choices_.size());
      choices_.push_back(choice);
    }
  }
}

// With clipping the norm of all gradients comes first, and so does whether one of f16 overflowed; adapters'
// gradients are small. Several ranks gather what each has updated at once: it is in memory.
bool Search::may_update_in_backward(int64_t accumulation, const OffloadChoice& choice) const {
  const bool in_memory = !choice.states.any() && !choice.weights.any();
  return accumulation == 1 && (request_.workload.experiment.ranks == 1 || in_memory) &&
         request_.workload.experiment.optimizer.max_grad_norm == 0 &&
         !request_.workload.experiment.precision.scales_loss() && !request_.workload.experiment.lora &&
         choice.gradients == Space::device;
}

Search::Capacity Search::capacity_of(const MicroCapacity& micro) {
  Capacity capacity;
  Variant& variant = capacity.plain;
  variant.micro_batch = micro.samples;
  variant.micro_tokens = micro.tokens;
  variant.keep_frozen = request_.choices.keeps_frozen;
  variant.accumulation = most_micro_steps(request_.workload.experiment, micro);
  variant.eval_micro_batch = request_.choices.eval_micro_batch.value_or(micro.samples);
  variant.eval_micro_tokens = request_.choices.eval_micro_batch ? 0 : micro.tokens;
  capacity.chunks = chunks_of(request_, micro);
  variant.loss_chunk = capacity.chunks.front();
  variant.offload.slice_elements = std::max(
      variant.offload.slice_elements,
      round_up(ceil_div(count_parameters(request_.workload.experiment.model), kMostSlices), kSliceUnit));
  variant.update_in_backward = may_update_in_backward(variant.accumulation, variant.offload);
  // The time of computing: transfers only add to it.
  const DepthModel& model = model_like(variant, capacity.chunks, points_.front());
  capacity.at_least = std::numeric_limits<double>::max();
  for (size_t chunk = 0; chunk < capacity.chunks.size(); ++chunk)
    capacity.at_least = std::min(capacity.at_least, usage_like(model, chunk).seconds);
  return capacity;
}

// A device that computes on what is on its host has copies from the disk alone.
OffloadTargets Search::in_first_target(OffloadTargets targets) const {
  if (request_.target.device.reaches_host) return targets;
  for (PartTarget& target : targets)
    if (target.any()) target = request_.target.targets.front();
  return targets;
}

void Search::add_frames(Capacity& capacity) {
  capacity.begin = frames_.size();
  for (const OffloadChoice& choice : choices_) {
    Frame& frame = frames_.emplace_back();
    frame.variant = capacity.plain;
    frame.variant.offload = choice;
    frame.variant.update_in_backward = may_update_in_backward(frame.variant.accumulation, choice);
    frame.chunks = capacity.chunks;
    frame.at_least = capacity.at_least;
    frame.capacity = static_cast<size_t>(&capacity - capacities_.data());
    frame.offered = may_offer(choice);
    frame.whole = std::ranges::all_of(choice.targets(), &PartTarget::is_whole);
    frame.twin = capacity.begin +
                 known_.place_of.at(
                     {frame.whole ? in_first_target(choice.targets()) : choice.targets(), choice.prefetch});
    OffloadTargets on_device = choice.targets();
    on_device[static_cast<size_t>(Part::activations)] = Space::device;
    if (const auto found = known_.place_of.find({on_device, choice.prefetch}); found != known_.place_of.end())
      frame.on_device = capacity.begin + found->second;
  }
  capacity.end = frames_.size();
}

std::vector<Search::Spot> Search::levels_of_frame(size_t frame) const {
  if (const auto& stated = request_.choices.recompute)
    return {{.frame = frame,
             .first = stated->first,
             .rest = stated->rest,
             .first_layers = stated->first_layers,
             .segment = stated->segment}};
  std::vector<Spot> levels;
  for (const RecomputePoint point : points_)
    levels.push_back({.frame = frame, .first = point, .rest = point});
  return levels;
}

// Segments of two layers and more; of deep models the evenest ones of each number of segments.
std::vector<int64_t> Search::segment_sizes() const {
  std::vector<int64_t> sizes;
  if (request_.choices.recompute) return sizes;
  const int64_t deepest = std::ranges::max(depths_);  // segments do not reach from stack to stack
  for (int64_t segment = 2; segment <= deepest; ++segment) {
    const int64_t segments = ceil_div(deepest, segment);
    if (deepest <= kEverySegment || ceil_div(deepest, segments) == segment) sizes.push_back(segment);
  }
  return sizes;
}

// All of the shallowest; of others, whose layers are not alike, the ends of stacks and a few between.
std::vector<int64_t> Search::measured_places() const {
  constexpr int64_t kAll = 7, kParts = 4;
  std::set<int64_t> places;
  for (int64_t place = 1; place < layers_; ++place)
    if (layers_ < kAll || place == depths_.front() ||
        place * kParts / layers_ != (place - 1) * kParts / layers_)
      places.insert(place);
  return {places.begin(), places.end()};
}

RecomputeChoice Search::choice_of(const Spot& spot) const {
  RecomputeLevels levels(spot.first, spot.first_layers, spot.rest);
  levels.segment = spot.segment;
  return levels.in_layers(layers_);
}

Candidate Search::candidate(const Spot& spot) const {
  const Frame& frame = frames_[spot.frame];
  Candidate result;
  result.variant = variant_of(spot);
  result.variant.loss_chunk = frame.chunks[spot.chunk];
  result.variant.recompute = choice_of(spot);
  result.graphs = spot.graphs;
  result.arena_bytes = arena_bytes(spot);
  result.graph_bytes = spot.usage.of(Space::device) - result.arena_bytes;
  result.host_bytes = spot.usage.of(Space::host) + spot.usage.program_bytes;
  result.disk_bytes = spot.usage.of(Space::disk);
  result.disk_traffic = spot.usage.disk_traffic;
  result.seconds_per_step = spot.usage.seconds;
  return result;
}

std::vector<Variant> Search::all() const {
  std::vector<Variant> variants;
  const auto add = [&](Spot spot) {
    for (spot.chunk = 0; spot.chunk < frames_[spot.frame].chunks.size(); ++spot.chunk)
      variants.push_back(candidate(spot).variant);
  };
  for (size_t frame = 0; frame < frames_.size(); ++frame) {
    for (const Split& split : splits_of(frame))
      each_target_in(split, [&](const PartTarget& target) {
        for (Spot spot : levels_of_frame(frame)) {
          spot.split = split;
          spot.target = target;
          add(spot);
        }
        for (const int64_t segment : segments_of_splits())
          add({.frame = frame,
               .first = RecomputePoint::block,
               .rest = RecomputePoint::block,
               .segment = segment,
               .split = split,
               .target = target});
      });
    if (!frames_[frame].offered) continue;
    for (const Spot& spot : levels_of_frame(frame)) add(spot);
    for (size_t i = 1; i < points_.size(); ++i)
      for (int64_t first = 1; first < layers_; ++first)
        add({.frame = frame, .first = points_[i], .rest = points_[i - 1], .first_layers = first});
    for (const int64_t segment : segment_sizes())
      add({.frame = frame,
           .first = RecomputePoint::block,
           .rest = RecomputePoint::block,
           .segment = segment});
  }
  return variants;
}

}  // namespace plimsoll
