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
constexpr int64_t kFineSegments = 4;
constexpr int64_t kDeep = 12;      // layers
constexpr int64_t kVeryDeep = 48;  // layers
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
         keeps(candidate.arena_bytes + host_bytes, budget.process_bytes);
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
  Key key{0, key_of(frame.variant)};
  key.second.push_back(static_cast<int64_t>(first));
  key.second.push_back(static_cast<int64_t>(rest));
  if (layers_ < DepthModel::kFewest) {
    key.first = static_cast<size_t>(first_layers) + 1;
    const auto known = measured_.find(key);
    if (known != measured_.end()) return candidate(frame, choice, known->second);
    Variant variant = frame.variant;
    variant.recompute = choice;
    const Usage usage = measure(programs_, variant);
    measured_.emplace(key, usage);
    return candidate(frame, choice, usage);
  }
  auto known = models_.find(key);
  if (known == models_.end()) {
    known = models_.emplace(key, DepthModel(programs_, frame.variant, first, rest)).first;
  }
  const int64_t rest_layers = first == rest ? 0 : layers_ - first_layers;
  return candidate(frame, choice, known->second.at(layers_ - rest_layers, rest_layers));
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

// Segments worth weighing: from pairs of layers to where the inputs that are kept and those of one segment
// are equally many.
std::vector<int64_t> Search::segment_sizes() const {
  std::vector<int64_t> sizes;
  const auto largest = static_cast<int64_t>(std::sqrt(static_cast<double>(layers_))) + 1;
  const bool coarse = layers_ > kVeryDeep;
  for (int64_t segment = 2; segment <= largest;) {
    sizes.push_back(segment);
    segment += coarse ? segment : segment < kFineSegments ? 1 : segment / 2;
  }
  return sizes;
}

// What no segments of a frame go below: all that they drop are inputs of layers.
Candidate Search::below_segments(const Frame& frame) {
  Candidate least = pure(frame, points_.back());
  const Experiment& experiment = request_.experiment;
  const int64_t input = frame.variant.micro_batch * experiment.max_length * experiment.model.hidden *
                        size_of(experiment.precision.compute);
  for (int64_t* bytes : {&least.arena_bytes, &least.host_bytes, &least.disk_bytes})
    *bytes = std::max<int64_t>(0, *bytes - layers_ * input);
  return least;
}

// Whole segments: the least that recomputation can do. Measured at full depth, as segments do not repeat
// evenly.
std::optional<Candidate> Search::in_segments(const Frame& frame, const Fits& fits, double faster_than) {
  if (request_.recompute || !fits(below_segments(frame))) return std::nullopt;
  for (const int64_t segment : segment_sizes()) {
    const Candidate c = segments(frame, segment);
    if (c.seconds_per_step >= faster_than) return std::nullopt;
    if (fits(c)) return c;
  }
  return std::nullopt;
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

Candidate Search::smallest(const Budget& budget) {
  Budget others = budget;
  others.device_bytes.reset();
  others.process_bytes.reset();
  std::optional<Candidate> best, unlimited;
  const auto take = [&](const Candidate& c) {
    const auto is_less = [&](const auto& than) { return !than || c.arena_bytes < than->arena_bytes; };
    if (is_less(unlimited)) unlimited = c;
    if (within(c, others, request_.host) && is_less(best)) best = c;
  };
  std::vector<std::pair<int64_t, const Frame*>> promising;
  const bool deep = layers_ > kDeep;
  const auto least_micro =
      std::min_element(frames_.begin(), frames_.end(), [](const Frame& a, const Frame& b) {
        return a.variant.micro_batch < b.variant.micro_batch;
      })->variant.micro_batch;
  for (const Frame& frame : frames_) {
    // Deep models are bound by what grows with the micro-batch, and take longer to measure.
    if (deep && frame.variant.micro_batch != least_micro) continue;
    take(pure(frame, points_.back()));
    promising.emplace_back(below_segments(frame).arena_bytes, &frame);
  }
  if (!request_.recompute && layers_ > 1) {
    std::stable_sort(promising.begin(), promising.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [bytes, frame] : promising) {
      if (best && bytes >= best->arena_bytes) break;
      for (const int64_t segment : segment_sizes()) take(segments(*frame, segment));
    }
  }
  return best ? *best : *unlimited;
}

std::vector<Candidate> Search::curve(const Budget& budget, int points) {
  const Check any = [](const Candidate&) { return true; };
  Budget open = budget;
  open.device_bytes.reset();
  std::vector<Candidate> result = {smallest(budget)};
  const auto fastest_open = fastest(open, any);
  if (!fastest_open) return result;
  const auto least = static_cast<double>(result.front().arena_bytes);
  const double ratio = static_cast<double>(fastest_open->arena_bytes) / least;
  for (int i = 1; i <= points; ++i) {
    open.device_bytes = static_cast<int64_t>(least * std::pow(ratio, static_cast<double>(i) / points));
    const auto found = fastest(open, any);
    if (found && found->arena_bytes != result.back().arena_bytes) result.push_back(*found);
  }
  return result;
}

}  // namespace plimsoll
