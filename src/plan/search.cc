#include "plan/search.h"

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "models/decoder.h"
#include "ops/optimizer.h"
#include "plan/time_model.h"

namespace plimsoll {
namespace {

constexpr int64_t kSmallChunk = 128;  // rows of logits: least memory for the loss
constexpr size_t kMostSplits = 10;
// Slices of an update: more of them cost planning time and save little beside the weights.
constexpr int64_t kMostSlices = 2048;

// Micro-batch sizes worth weighing: for every number of micro-steps the smallest size that reaches it, since
// a larger one of the same number costs memory and saves nothing. Of many, those nearest to halving again and
// again.
std::vector<int64_t> micro_batches(const PlanRequest& request) {
  const int64_t effective = request.experiment.effective_batch;
  if (request.micro_batch) return {std::min(*request.micro_batch, effective)};
  std::set<int64_t> sizes;
  for (int64_t micro = 1; micro <= effective; ++micro)
    sizes.insert(ceil_div(effective, accumulation_for(effective, micro)));
  if (sizes.size() > kMostSplits) {
    std::set<int64_t> halved;
    for (int64_t micro = effective; micro > 1; micro = ceil_div(micro, 2)) halved.insert(micro);
    halved.insert(1);
    sizes = halved;
  }
  return {sizes.rbegin(), sizes.rend()};
}

bool keeps(int64_t bytes, const std::optional<int64_t>& limit) { return !limit || bytes <= *limit; }

int parts_away(const OffloadChoice& choice) {
  int parts = 0;
  for (const Space space : {choice.states, choice.gradients, choice.weights, choice.activations})
    parts += space == Space::device ? 0 : 1;
  return parts;
}

// The faster one; of equally fast ones what moves fewer parts, then what takes fewer bytes.
bool better(const Candidate& a, const Candidate& b) {
  if (a.seconds_per_step != b.seconds_per_step) return a.seconds_per_step < b.seconds_per_step;
  const int parts_a = parts_away(a.variant.offload);
  const int parts_b = parts_away(b.variant.offload);
  return parts_a != parts_b ? parts_a < parts_b : a.arena_bytes < b.arena_bytes;
}

RecomputeChoice all_at(RecomputePoint point, int64_t layers, int64_t segment = 1) {
  if (point == RecomputePoint::none) return {};
  return {std::vector<RecomputePoint>(static_cast<size_t>(layers), point), segment};
}

}  // namespace

bool within(const Candidate& candidate, const Budget& budget, const HostNeeds& host) {
  const int64_t host_bytes = host.total() + candidate.host_bytes;
  return keeps(candidate.arena_bytes, budget.device_bytes) && keeps(host_bytes, budget.host_bytes) &&
         keeps(candidate.disk_bytes, budget.disk_bytes) &&
         keeps(candidate.arena_bytes + host_bytes + (budget.disk_in_memory ? candidate.disk_bytes : 0),
               budget.process_bytes);
}

Search::Search(const PlanRequest& request)
    : request_(request),
      layers_(request.experiment.model.layers),
      programs_(request.experiment, request.device) {
  if (request.recompute) {
    points_ = {*request.recompute};
  } else {
    for (int i = 0; i < kNumRecomputePoints; ++i) points_.push_back(static_cast<RecomputePoint>(i));
  }
  for (const int64_t micro : micro_batches(request)) {
    const int64_t usual = default_loss_chunk(request.experiment, micro * request.experiment.max_length);
    const int64_t chunk = request.loss_chunk.value_or(usual);
    add_frames(micro, chunk);
    if (!request.loss_chunk && kSmallChunk < chunk) add_frames(micro, kSmallChunk);
  }
  std::stable_sort(frames_.begin(), frames_.end(),
                   [](const Frame& a, const Frame& b) { return a.at_least < b.at_least; });
}

// The parts that may leave the device, each set with more than the one before; adapters have small states and
// gradients, so that these stay.
std::vector<OffloadChoice> Search::offloads() const {
  std::vector<OffloadChoice> sets;
  const int64_t slice =
      round_up(ceil_div(count_parameters(request_.experiment.model), kMostSlices), kSliceUnit);
  for (const Space home : request_.homes) {
    if (request_.offload) {
      OffloadChoice choice;
      if (request_.offload->states) choice.states = home;
      if (request_.offload->gradients) choice.gradients = home;
      if (request_.offload->weights) choice.weights = home;
      if (request_.offload->activations) choice.activations = home;
      if (choice.any()) sets.push_back(choice);
      continue;
    }
    for (const bool activations : {false, true}) {
      OffloadChoice choice;
      if (activations) {
        choice.activations = home;
        sets.push_back(choice);
      }
      if (!request_.experiment.lora) {
        choice.states = home;
        sets.push_back(choice);
        choice.gradients = home;
        sets.push_back(choice);
      }
      choice.weights = home;
      sets.push_back(choice);
    }
  }
  const bool may_stay = !request_.offload || !request_.offload->any();
  if (may_stay || sets.empty()) sets.insert(sets.begin(), OffloadChoice{});
  for (OffloadChoice& choice : sets) choice.slice_elements = std::max(choice.slice_elements, slice);
  return sets;
}

// With clipping the norm of all gradients comes first; adapters' gradients are small.
bool Search::may_update_in_backward(const Variant& variant) const {
  return variant.accumulation == 1 && request_.experiment.optimizer.max_grad_norm == 0 &&
         !request_.experiment.lora && variant.offload.gradients == Space::device;
}

void Search::add_frames(int64_t micro, int64_t chunk) {
  Frame frame;
  Variant& variant = frame.variant;
  variant.micro_batch = micro;
  variant.accumulation = accumulation_for(request_.experiment.effective_batch, micro);
  variant.eval_micro_batch = request_.eval_micro_batch.value_or(micro);
  variant.loss_chunk = chunk;
  const size_t begin = frames_.size();
  for (const OffloadChoice& offload : offloads()) {
    variant.offload = offload;
    variant.update_in_backward = may_update_in_backward(variant);
    frames_.push_back(frame);
  }
  // What computing takes: transfers only add to it.
  Frame plain = frames_[begin];
  plain.variant.offload = {};
  frames_.push_back(plain);
  const double seconds = pure(frames_.back(), points_.front()).seconds_per_step;
  frames_.pop_back();
  for (size_t i = begin; i < frames_.size(); ++i) frames_[i].at_least = seconds;
}

Candidate Search::candidate(const Frame& frame, const RecomputeChoice& choice, const Usage& usage) const {
  Candidate result;
  result.variant = frame.variant;
  result.variant.recompute = choice;
  result.arena_bytes = usage.of(Space::device);
  result.host_bytes = usage.of(Space::host) + usage.program_bytes;
  result.disk_bytes = usage.of(Space::disk);
  result.seconds_per_step = usage.seconds;
  return result;
}

namespace {

// Frames are compared by what they are, as their order changes.
std::vector<int64_t> key_of(const Variant& v) {
  return {v.micro_batch,
          v.loss_chunk,
          static_cast<int64_t>(v.offload.states),
          static_cast<int64_t>(v.offload.gradients),
          static_cast<int64_t>(v.offload.weights),
          static_cast<int64_t>(v.offload.activations),
          v.offload.prefetch,
          v.update_in_backward ? 1 : 0};
}

}  // namespace

RecomputeChoice Search::mixture(RecomputePoint first, int64_t first_layers, RecomputePoint rest) const {
  RecomputeChoice choice = all_at(rest, layers_);
  if (first_layers > 0) {
    choice.layers.resize(static_cast<size_t>(layers_), RecomputePoint::none);
    std::fill_n(choice.layers.begin(), first_layers, first);
  }
  return choice;
}

Candidate Search::mixed(const Frame& frame, RecomputePoint first, int64_t first_layers, RecomputePoint rest) {
  const RecomputeChoice choice = mixture(first, first_layers, rest);
  if (layers_ < DepthModel::kFewest) {
    Key key{static_cast<size_t>(first_layers) + 1, key_of(frame.variant)};
    key.second.push_back(static_cast<int64_t>(first));
    key.second.push_back(static_cast<int64_t>(rest));
    const auto known = measured_.find(key);
    if (known != measured_.end()) return candidate(frame, choice, known->second);
    Variant variant = frame.variant;
    variant.recompute = choice;
    const Usage usage = measure(programs_, variant);
    measured_.emplace(key, usage);
    return candidate(frame, choice, usage);
  }
  const int64_t rest_layers = first == rest ? 0 : layers_ - first_layers;
  return candidate(frame, choice, depth_model(frame, first, rest)->at(layers_ - rest_layers, rest_layers));
}

const DepthModel* Search::depth_model(const Frame& frame, RecomputePoint first, RecomputePoint rest) {
  if (layers_ < DepthModel::kFewest) return nullptr;
  Key key{0, key_of(frame.variant)};
  key.second.push_back(static_cast<int64_t>(first));
  key.second.push_back(static_cast<int64_t>(rest));
  auto known = models_.find(key);
  if (known == models_.end())
    known = models_.emplace(key, DepthModel(programs_, frame.variant, first, rest)).first;
  return &known->second;
}

Candidate Search::pure(const Frame& frame, RecomputePoint point) {
  return mixed(frame, point, layers_, point);
}

Candidate Search::segments(const Frame& frame, int64_t segment) {
  Key key{static_cast<size_t>(segment), key_of(frame.variant)};
  const RecomputeChoice choice = all_at(RecomputePoint::block, layers_, segment);
  const auto known = measured_.find(key);
  if (known != measured_.end()) return candidate(frame, choice, known->second);
  Variant variant = frame.variant;
  variant.recompute = choice;
  const Usage usage = measure(programs_, variant);
  measured_.emplace(key, usage);
  return candidate(frame, choice, usage);
}

// Between a point that does not fit and the next one, which does: as few layers at the next one as will do.
std::optional<Candidate> Search::between(const Frame& frame, size_t point, const Fits& fits) {
  const bool shallow = layers_ < DepthModel::kFewest;
  const int64_t fewest = shallow ? 1 : DepthModel::kFirst;
  const int64_t most = shallow ? layers_ - 1 : layers_ - (DepthModel::kLayers - DepthModel::kFirst);
  std::optional<Candidate> found;
  int64_t low = fewest;
  int64_t high = most;
  while (low <= high) {
    const int64_t middle = low + (high - low) / 2;
    const Candidate c = mixed(frame, points_[point], middle, points_[point - 1]);
    if (fits(c)) {
      found = c;
      high = middle - 1;
    } else {
      low = middle + 1;
    }
  }
  return found;
}

std::optional<Candidate> Search::best_of(const Frame& frame, const Fits& fits, double faster_than) {
  const Candidate first = pure(frame, points_.front());
  if (first.seconds_per_step >= faster_than) return std::nullopt;
  if (fits(first)) return first;
  const Candidate last = pure(frame, points_.back());
  if (!fits(last)) {
    if (last.seconds_per_step >= faster_than) return std::nullopt;
    return in_segments(frame, fits, faster_than);
  }
  for (size_t i = 1; i < points_.size(); ++i) {
    const Candidate c = pure(frame, points_[i]);
    if (!fits(c)) continue;
    const auto fewer = between(frame, i, fits);
    return fewer && better(*fewer, c) ? fewer : c;
  }
  return last;
}

std::optional<Candidate> Search::fastest(const Budget& budget, const Check& check) {
  std::set<std::vector<int64_t>> rejected;
  const auto identity = [](const Candidate& c) {
    std::vector<int64_t> key = key_of(c.variant);
    key.push_back(c.variant.recompute.segment);
    for (const RecomputePoint point : c.variant.recompute.layers) key.push_back(static_cast<int64_t>(point));
    return key;
  };
  const Fits fits = [&](const Candidate& c) {
    return within(c, budget, request_.host) && (rejected.empty() || !rejected.contains(identity(c)));
  };
  while (true) {
    std::optional<Candidate> best;
    for (const Frame& frame : frames_) {
      // Frames that could only be as fast may still take fewer bytes.
      if (best && frame.at_least > best->seconds_per_step) break;
      const double limit = best ? std::nextafter(best->seconds_per_step, 1e300) : 1e300;
      const auto found = best_of(frame, fits, limit);
      if (found && (!best || better(*found, *best))) best = found;
    }
    if (!best || check(*best)) return best;
    rejected.insert(identity(*best));
  }
}

std::vector<Variant> Search::all() const {
  std::vector<Variant> variants;
  const auto add = [&](const Frame& frame, const RecomputeChoice& choice) {
    variants.push_back(frame.variant);
    variants.back().recompute = choice;
  };
  for (const Frame& frame : frames_) {
    for (size_t i = 0; i < points_.size(); ++i) {
      add(frame, all_at(points_[i], layers_));
      for (int64_t first = 1; i > 0 && first < layers_; ++first)
        add(frame, mixture(points_[i], first, points_[i - 1]));
    }
    if (request_.recompute) continue;
    for (const int64_t segment : segment_sizes()) add(frame, all_at(RecomputePoint::block, layers_, segment));
  }
  return variants;
}

}  // namespace plimsoll
