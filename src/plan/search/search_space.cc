// The space that the search goes through: what may be cut how.
#include <algorithm>
#include <set>

#include "base/units.h"
#include "models/model.h"
#include "ops/optimizer/optimizer.h"
#include "plan/search/micro_rooms.h"
#include "plan/search/search.h"

namespace plimsoll {
namespace {

constexpr int64_t kLeastChunk = 16;  // rows of logits: fewer save next to nothing
// Slices of an update: more of them cost planning time and save little beside the weights.
constexpr int64_t kMostSlices = 2048;
// Deeper models are cut into as many different numbers of segments, each as evenly as it goes.
constexpr int64_t kEverySegment = 32;

// Rows of logits at a time: the usual number and the powers of two below it.
std::vector<int64_t> chunks_of(const PlanRequest& request, const MicroRoom& room) {
  if (request.choices.loss_chunk) return {*request.choices.loss_chunk};
  const int64_t usual =
      default_loss_chunk(request.workload.experiment, request.workload.experiment.logit_rows(room));
  std::vector<int64_t> chunks = {usual};
  if (rule_of(request.workload.experiment.task.task).scores) return chunks;  // there are no logits
  for (int64_t chunk = 512; chunk >= kLeastChunk; chunk /= 2)
    if (chunk < usual) chunks.push_back(chunk);
  return chunks;
}

RecomputeChoice all_at(RecomputePoint point, int64_t layers, int64_t segment = 1) {
  if (point == RecomputePoint::none) return {};
  return {std::vector<RecomputePoint>(static_cast<size_t>(layers), point), segment};
}

}  // namespace

Search::Search(const PlanRequest& request, int64_t most_ops)
    : request_(request),
      most_ops_(most_ops),
      layers_(request.workload.experiment.model.layers),
      depths_(request.workload.experiment.model.stacks()),
      is_deep_(is_deep(request.workload.experiment)),
      programs_(request.workload.experiment, request.target.device, [&request](const Variant& v) {
        return filling_of(request.workload.experiment, request.workload.run, v);
      }) {
  if (request.choices.recompute) {
    points_ = {*request.choices.recompute};
  } else {
    for (int i = 0; i < kNumRecomputePoints; ++i) points_.push_back(static_cast<RecomputePoint>(i));
  }
  for (const MicroRoom& room : micro_rooms(request)) add_frames(room);
  // Frames of one room stay together: their graphs have much in common.
  std::stable_sort(frames_.begin(), frames_.end(),
                   [](const Frame& a, const Frame& b) { return a.at_least < b.at_least; });
  find_frames_at_home();
}

// Of each frame the one that says what it takes at least.
void Search::find_frames_at_home() {
  for (Frame& frame : frames_) {
    Variant like = frame.variant;
    like.offload.activations = Space::device;
    const auto found = std::ranges::find_if(frames_, [&](const Frame& other) {
      return other.variant.micro_batch == like.micro_batch &&
             other.variant.micro_tokens == like.micro_tokens && other.variant.offload == like.offload;
    });
    if (found != frames_.end()) frame.at_home = static_cast<size_t>(found - frames_.begin());
  }
}

// Every set of parts that may leave the device, those of few parts first.
std::vector<OffloadChoice> Search::offloads() const {
  std::vector<OffloadChoice> sets;
  const int64_t slice =
      round_up(ceil_div(count_parameters(request_.workload.experiment.model), kMostSlices), kSliceUnit);
  const auto add = [&](Space home, const OffloadParts& parts) {
    OffloadChoice choice;
    if (parts.states) choice.states = home;
    if (parts.gradients) choice.gradients = home;
    if (parts.weights) choice.weights = home;
    if (parts.activations) choice.activations = home;
    sets.push_back(choice);
  };
  for (const Space home : request_.target.homes) {
    if (request_.choices.offload) {
      if (request_.choices.offload->any()) add(home, *request_.choices.offload);
      continue;
    }
    for (unsigned mask = 1; mask < 16; ++mask)
      add(home, {(mask & 1U) != 0, (mask & 2U) != 0, (mask & 4U) != 0, (mask & 8U) != 0});
  }
  const bool may_stay = !request_.choices.offload || !request_.choices.offload->any();
  if (may_stay || sets.empty()) sets.insert(sets.begin(), OffloadChoice{});
  for (OffloadChoice& choice : sets) choice.slice_elements = std::max(choice.slice_elements, slice);
  return sets;
}

// With clipping the norm of all gradients comes first, and so does whether one of f16 overflowed; adapters'
// gradients are small.
bool Search::may_update_in_backward(const Variant& variant) const {
  return variant.accumulation == 1 && request_.workload.experiment.optimizer.max_grad_norm == 0 &&
         !request_.workload.experiment.precision.scales_loss() && !request_.workload.experiment.lora &&
         variant.offload.gradients == Space::device;
}

void Search::add_frames(const MicroRoom& room) {
  Frame frame;
  Variant& variant = frame.variant;
  variant.micro_batch = room.samples;
  variant.micro_tokens = room.tokens;
  variant.keep_frozen = request_.choices.keeps_frozen;
  variant.accumulation = most_micro_steps(request_.workload.experiment, room);
  variant.eval_micro_batch = request_.choices.eval_micro_batch.value_or(room.samples);
  variant.eval_micro_tokens = request_.choices.eval_micro_batch ? 0 : room.tokens;
  frame.chunks = chunks_of(request_, room);
  variant.loss_chunk = frame.chunks.front();
  const size_t begin = frames_.size();
  for (const OffloadChoice& offload : offloads()) {
    variant.offload = offload;
    variant.update_in_backward = may_update_in_backward(variant);
    frames_.push_back(frame);
  }
  // What computing takes: transfers only add to it.
  Variant plain = frames_[begin].variant;
  plain.offload = {};
  plain.offload.slice_elements = variant.offload.slice_elements;
  plain.update_in_backward = may_update_in_backward(plain);
  const RecomputePoint least = points_.front();
  const DepthModel model = [&] {
    if (is_deep_)
      return DepthModel::mixture(programs_, plain, frame.chunks,
                                 std::vector<StackPoints>(depths_.size(), {least, least}));
    plain.recompute = all_at(least, layers_);
    return DepthModel::exact(programs_, plain, frame.chunks);
  }();
  std::vector<StackDepth> stacks;
  for (const int64_t depth : depths_) stacks.push_back({depth, depth});
  double seconds = 1e300;
  for (size_t chunk = 0; chunk < frame.chunks.size(); ++chunk)
    seconds = std::min(seconds, (is_deep_ ? model.at(stacks, chunk) : model.at(chunk)).seconds);
  for (size_t i = begin; i < frames_.size(); ++i) frames_[i].at_least = seconds;
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
  RecomputeChoice choice = all_at(spot.rest, layers_, spot.segment);
  if (spot.first_layers > 0) {
    choice.layers.resize(static_cast<size_t>(layers_), RecomputePoint::none);
    std::fill_n(choice.layers.begin(), spot.first_layers, spot.first);
  }
  return choice;
}

Candidate Search::candidate(const Spot& spot) const {
  const Frame& frame = frames_[spot.frame];
  Candidate result;
  result.variant = frame.variant;
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
    for (size_t i = 0; i < points_.size(); ++i) {
      add({.frame = frame, .first = points_[i], .rest = points_[i]});
      for (int64_t first = 1; i > 0 && first < layers_; ++first)
        add({.frame = frame, .first = points_[i], .rest = points_[i - 1], .first_layers = first});
    }
    for (const int64_t segment : segment_sizes())
      add({.frame = frame,
           .first = RecomputePoint::block,
           .rest = RecomputePoint::block,
           .segment = segment});
  }
  return variants;
}

}  // namespace plimsoll
