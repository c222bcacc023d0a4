// The search over variants: the fastest one within the limits, by bytes and seconds of real programs.
//
// A frame is everything of a variant but the recompute points; its points go from keeping everything to the
// least memory (more layers at a deeper point, then segments). Frames are taken in the order of the time they
// need at least, and left out once that is no better than what was found. No frame and no point depends on a
// limit, and a limit only lets points pass, so a larger budget never leads to a slower variant.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "plan/depth_model.h"
#include "plan/plan.h"

namespace plimsoll {

class Search {
 public:
  // `request` must outlive the search.
  explicit Search(const PlanRequest& request);

  // The fastest candidate within `budget` that passes `check`, which lays the candidate out; none: nothing
  // fits. Among equally fast ones what moves fewer parts off the device, then what takes fewer device bytes.
  using Check = std::function<bool(const Candidate&)>;
  std::optional<Candidate> fastest(const Budget& budget, const Check& check);
  // The candidate with the least device bytes within the limits on host and disk; without such limits where
  // nothing keeps them.
  Candidate smallest(const Budget& budget);
  // Fastest candidates for budgets of device bytes between the smallest and the one that nothing limits.
  std::vector<Candidate> curve(const Budget& budget, int points);
  // Every variant that any budget may lead to, for models of few layers.
  [[nodiscard]] std::vector<Variant> all() const;

 private:
  struct Frame {
    Variant variant;
    double at_least = 0;  // seconds: without recomputation and transfers
  };
  using Points = std::vector<RecomputePoint>;

  void add_frames(int64_t micro, int64_t chunk);
  std::vector<OffloadChoice> offloads() const;
  [[nodiscard]] bool may_update_in_backward(const Variant& variant) const;
  Candidate candidate(const Frame& frame, const RecomputeChoice& choice, const Usage& usage) const;
  [[nodiscard]] RecomputeChoice mixture(RecomputePoint first, int64_t first_layers,
                                        RecomputePoint rest) const;
  // nullptr where models are so shallow that their programs are measured as they are.
  const DepthModel* depth_model(const Frame& frame, RecomputePoint first, RecomputePoint rest);
  // By measured depth: the first `first_layers` at `first`, the rest at `rest`.
  Candidate mixed(const Frame& frame, RecomputePoint first, int64_t first_layers, RecomputePoint rest);
  Candidate pure(const Frame& frame, RecomputePoint point);
  Candidate segments(const Frame& frame, int64_t segment);
  // The fastest candidate of a frame that `fits`.
  using Fits = std::function<bool(const Candidate&)>;
  std::optional<Candidate> best_of(const Frame& frame, const Fits& fits, double faster_than);
  std::optional<Candidate> between(const Frame& frame, size_t point, const Fits& fits);
  [[nodiscard]] std::vector<int64_t> segment_sizes() const;
  [[nodiscard]] int64_t input_bytes(const Frame& frame) const;
  int64_t without_inputs(const Frame& frame);
  void take_all_points(const Frame& frame, const std::function<void(const Candidate&)>& take);
  Candidate below_segments(const Frame& frame, int64_t segment);
  std::optional<Candidate> in_segments(const Frame& frame, const Fits& fits, double faster_than);

  const PlanRequest& request_;
  int64_t layers_;
  Points points_;  // that may be chosen, ascending
  KnownPrograms programs_;
  std::vector<Frame> frames_;
  using Key = std::pair<size_t, std::vector<int64_t>>;
  std::map<Key, DepthModel> models_;
  std::map<Key, Usage> measured_;
};

// Whether the estimate of a candidate keeps all limits.
bool within(const Candidate& candidate, const Budget& budget, const HostNeeds& host);

}  // namespace plimsoll
