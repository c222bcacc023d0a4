// The search's last resort: recomputation in segments of several layers, and the least memory of all.
#include <algorithm>
#include <cmath>

#include "plan/search.h"

namespace plimsoll {
namespace {

constexpr int64_t kFineSegments = 4;
constexpr int64_t kDeep = 12;      // layers
constexpr int64_t kVeryDeep = 48;  // layers

}  // namespace

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

int64_t Search::input_bytes(const Frame& frame) const {
  const Experiment& experiment = request_.experiment;
  return frame.variant.micro_batch * experiment.max_length * experiment.model.hidden *
         size_of(experiment.precision.compute);
}

// Below the device bytes of a frame at any segments: an order to try frames in.
int64_t Search::without_inputs(const Frame& frame) {
  return std::max<int64_t>(0, pure(frame, points_.back()).arena_bytes - layers_ * input_bytes(frame));
}

// What the frame takes at segments at least, without building their programs.
Candidate Search::below_segments(const Frame& frame, int64_t segment) {
  const RecomputePoint block = points_.back();
  const RecomputeChoice choice{std::vector<RecomputePoint>(static_cast<size_t>(layers_), block), segment};
  const DepthModel* model = depth_model(frame, block, block);
  if (model != nullptr)
    return candidate(frame, choice, model->below_segments(layers_, segment, input_bytes(frame)));
  Candidate least = pure(frame, block);
  least.variant.recompute = choice;
  for (int64_t* bytes : {&least.arena_bytes, &least.host_bytes, &least.disk_bytes})
    *bytes = std::max<int64_t>(0, *bytes - layers_ * input_bytes(frame));
  return least;
}

// Whole segments: the least that recomputation can do. Measured at full depth, as segments do not repeat
// evenly.
std::optional<Candidate> Search::in_segments(const Frame& frame, const Fits& fits, double faster_than) {
  if (request_.recompute) return std::nullopt;
  for (const int64_t segment : segment_sizes()) {
    if (!fits(below_segments(frame, segment))) continue;
    const Candidate c = segments(frame, segment);
    if (c.seconds_per_step >= faster_than) return std::nullopt;
    if (fits(c)) return c;
  }
  return std::nullopt;
}

// Of small models a program's own description weighs as much as what recomputing saves: each mixture counts.
void Search::take_all_points(const Frame& frame, const std::function<void(const Candidate&)>& take) {
  for (size_t i = 0; i + 1 < points_.size(); ++i) take(pure(frame, points_[i]));
  for (size_t i = 1; i < points_.size(); ++i)
    for (int64_t first = 1; first < layers_; ++first) take(mixed(frame, points_[i], first, points_[i - 1]));
}

Candidate Search::smallest(const Budget& budget) {
  Budget others = budget;
  others.device_bytes.reset();
  others.process_bytes.reset();
  std::optional<Candidate> best, unlimited;
  const auto bytes_of = [&](const Candidate& c) { return memory_bytes(request_, c); };
  const auto take = [&](const Candidate& c) {
    const auto is_less = [&](const auto& than) { return !than || bytes_of(c) < bytes_of(*than); };
    if (is_less(unlimited)) unlimited = c;
    if (within(c, others, request_.host) && is_less(best)) best = c;
  };
  const auto may_count = [&](const Candidate& least) {
    if (best && bytes_of(least) < bytes_of(*best)) return true;
    return !best && (within(least, others, request_.host) || bytes_of(least) < bytes_of(*unlimited));
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
    if (layers_ < DepthModel::kFewest) take_all_points(frame, take);
    promising.emplace_back(without_inputs(frame), &frame);
  }
  if (!request_.recompute && layers_ > 1) {
    std::stable_sort(promising.begin(), promising.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [bytes, frame] : promising) {
      if (best && bytes >= bytes_of(*best)) break;
      for (const int64_t segment : segment_sizes())
        if (may_count(below_segments(*frame, segment))) take(segments(*frame, segment));
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
