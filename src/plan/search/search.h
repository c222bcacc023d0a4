// The search over variants, by bytes and seconds of real programs: the fastest one within the limits, and the
// least memory of all.
//
// A frame is a micro-batch, a place for each part and how far ahead transfers start. Within a frame lie lines:
// the first k layers at one point of recomputation, the rest at the point before it; and points: all layers at
// one, or in segments. At a point one of the parts may also have several offload targets, the first layers' one and the
// rest's another (docs/decisions/29-offload-targets.md). Bytes and seconds are convex along a line of a deep model
// (depth_model.h), so that what keeps the limits is an interval, found by bisection; shallow models are measured one by
// one. Frames are left out only for bounds: what they take without recomputation, in seconds, and with all of it, in
// bytes; first by sums of what each part moves (offload_costs.h), then measured. Nothing in the space depends on a limit,
// so a larger budget never leads to a slower variant.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "plan/search/depth_model.h"
#include "plan/search/offload_costs.h"
#include "plan/search/plan.h"

namespace plimsoll {

// Ops of programs that a search builds or lays out at most, a few minutes of work. A number of ops and not of
// seconds, so that the same question has the same answer on a busy machine.
inline constexpr int64_t kMostOps = 60'000'000;

inline bool keeps(int64_t bytes, const std::optional<int64_t>& limit) { return !limit || bytes <= *limit; }

class Search {
 public:
  // `request` must outlive the search.
  explicit Search(const PlanRequest& request, int64_t most_ops = kMostOps);

  // The candidate as it is when its programs are laid out.
  using LayOut = std::function<Candidate(const Candidate&)>;
  // The best of the candidates within `budget` whose time exceeds that of the fastest by at most the
  // request's tie: the one with the least disk traffic, of these the one with the least memory of the host
  // for offloaded tensors, of these the one with the least memory. None: nothing fits. `on_device`: of those
  // that move nothing off the device.
  std::optional<Candidate> fastest(const Budget& budget, const LayOut& lay_out, bool on_device = false);
  // Returns false where estimates, with room for what they may be off, say that nothing is within the budget.
  bool may_fit(const Budget& budget);
  // The least memory within all other limits: of the device, or of the process where that is what is limited.
  // Limits of host and disk below what every candidate takes count as so much. Where no candidate keeps
  // those, the one that exceeds them least.
  Candidate smallest(const Budget& budget, const LayOut& lay_out);
  // The least memory within all limits and so many seconds.
  std::optional<Candidate> least_within(const Budget& budget, double seconds, const LayOut& lay_out,
                                        bool on_device = false);
  // The least memory in at most 10 % more time than `chosen`, where that is a fifth less of it or better and
  // moves no other parts off the device, and none to disk where `chosen` has none there. By what the search knows already, and
  // one layout.
  std::optional<Candidate> knee(const Candidate& chosen, const Budget& budget, const LayOut& lay_out);
  // Bytes that the variant does not go below, by its frame and by all frames that take no more: for tests.
  std::optional<DepthModel::Floor> floor_of(const Variant& variant);
  // The least that the variant takes and costs, by sums: for tests.
  struct Least {
    int64_t device = 0, host = 0, disk = 0;  // bytes, of the host without programs
    int64_t programs = 0;                    // bytes of the host
    int64_t disk_traffic = 0;
    double seconds = 0;
  };
  std::optional<Least> least_of(const Variant& variant);
  // Every variant of the space: what any budget may lead to.
  [[nodiscard]] std::vector<Variant> all() const;
  // True if it stopped at its limit of work, with the best found until then.
  [[nodiscard]] bool ended_early() const { return ended_early_; }
  [[nodiscard]] const std::shared_ptr<KnownModels>& measured() const { return programs_.models(); }

 private:
  struct Frame {
    Variant variant;              // with the largest chunk
    std::vector<int64_t> chunks;  // of the loss, the largest first
    double at_least = 0;          // seconds: without recomputation and transfers
    // The one that leaves activations on the device and is like this otherwise.
    std::optional<size_t> on_device;
    size_t capacity = 0;
    bool offered = false;  // else it only predicts others
    bool whole = true;     // each part has one offload target
    size_t twin = 0;       // whose parts that move all have the first offload target
  };
  // A micro-step's capacity, with the frames that are of it.
  struct Capacity {
    size_t begin = 0, end = 0;
    Variant plain;  // that moves nothing
    std::vector<int64_t> chunks;
    double at_least = 0;
  };
  // Places of one part side by side, for the first layers, the next and the rest.
  struct Split {
    Part part = Part::states;
    bool disk = false, host = false, device = false;
    [[nodiscard]] bool any() const { return disk || host || device; }
    [[nodiscard]] int64_t key() const {
      return any() ? 1 + static_cast<int64_t>(part) * 8 + (disk ? 4 : 0) + (host ? 2 : 0) + (device ? 1 : 0)
                   : 0;
    }
  };
  // A place in the space, with what it takes there.
  struct Spot {
    size_t frame = 0, chunk = 0;
    RecomputePoint first = RecomputePoint::none, rest = RecomputePoint::none;
    int64_t first_layers = 0;
    int64_t segment = 1;
    bool graphs = false;  // captured, of the programs for which they are worth it
    Split split{};        // of the frame's part, which lives there
    PartTarget target{};
    Usage usage{};
  };
  struct Limits {
    Budget budget;
    double seconds = 1e300;  // exclusive
    bool smallest_first = false;
    // Disk traffic and bytes of the host that are preferred to more: what has more is left out.
    std::optional<std::pair<int64_t, int64_t>> preferred{};
    bool on_device = false;  // frames that move nothing
    std::optional<OffloadChoice> moves_no_more_than{};
    // Frames that take at least so many are left out: of what `taken` says, or else of the variant's own in all memory.
    int64_t bytes = int64_t{1} << 62;
    bool of_ties = false;
    bool has_least = false;  // capacities that take no less than one that was looked at are left out
    [[nodiscard]] bool is_open() const { return seconds >= 1e300; }
  };
  using Key = std::tuple<size_t, RecomputePoint, RecomputePoint, int64_t, int64_t, int64_t, int64_t, int64_t>;
  // May lower the seconds and bytes of the limits.
  using Visit = std::function<void(const Spot&, Limits&)>;

  static constexpr int64_t kOpenBytes = std::numeric_limits<int64_t>::max();
  static constexpr double kOpen = 1e300;  // seconds
  // Ops of the programs of full depth that one question lays out where layouts miss their bounds, a dozen of 80 layers.
  static constexpr int64_t kMostLaidOut = 150'000;
  // Returns whether `most` moves of every part what `some` moves of it.
  static bool moves_all_of(const OffloadChoice& most, const OffloadChoice& some);
  // Returns whether `some` moves of every part no more than `most` does, and nothing to disk where that moves nothing there.
  static bool moves_no_more(const OffloadChoice& some, const OffloadChoice& most);
  static int64_t process_bytes(const Usage& usage);
  [[nodiscard]] Capacity capacity_of(const MicroCapacity& capacity);
  [[nodiscard]] OffloadTargets in_first_target(OffloadTargets targets) const;
  void add_frames(Capacity& capacity);
  [[nodiscard]] std::vector<OffloadTargets> all_targets() const;
  [[nodiscard]] std::vector<int64_t> prefetches() const;
  [[nodiscard]] bool may_offer(const OffloadChoice& choice) const;
  void add_choices();
  [[nodiscard]] bool moves_most(const Frame& frame) const;
  [[nodiscard]] bool may_update_in_backward(int64_t accumulation, const OffloadChoice& choice) const;
  [[nodiscard]] std::vector<int64_t> segment_sizes() const;
  // Numbers of first layers that are measured whatever the limits: of shallow models.
  [[nodiscard]] std::vector<int64_t> measured_places() const;
  // A stack of layers, and where it begins.
  struct StackRange {
    int64_t begin = 0, depth = 0;
    [[nodiscard]] int64_t first_of(int64_t first_layers) const {
      return std::clamp(first_layers - begin, int64_t{0}, depth);
    }
  };
  [[nodiscard]] std::vector<StackRange> stack_ranges() const;
  [[nodiscard]] std::vector<StackPoints> points_of(const Spot& spot) const;
  // A frame's spots that are no mixture of levels: all layers at one point, ascending; or what is stated.
  [[nodiscard]] std::vector<Spot> levels_of_frame(size_t frame) const;

  [[nodiscard]] RecomputeChoice choice_of(const Spot& spot) const;
  [[nodiscard]] Candidate candidate(const Spot& spot) const;
  [[nodiscard]] Key model_key(const Spot& spot) const;
  [[nodiscard]] bool is_known(const Spot& spot) const;
  [[nodiscard]] bool tells_by_depth(const Spot& spot) const;
  bool may_measure(const Spot& spot);
  Usage usage_at(const Spot& spot);
  void add_other_needs(const Spot& spot, Usage& usage) const;
  // Adds what is not the variant's programs, and as late as its line was.
  Usage finished(const Spot& spot, Usage usage);
  Usage bytes_and_seconds(const Spot& spot);
  void is_late(const Spot& spot, const Candidate& laid_out);
  const DepthModel& model_of(const Spot& spot);
  double least_seconds_at(const Spot& spot);
  [[nodiscard]] bool counts_device_alone(const Budget& budget) const;
  [[nodiscard]] int64_t taken(const Usage& usage, const Budget& budget) const;
  // Returns true if no choice at this point or a deeper one is fast enough.
  bool is_too_slow(size_t frame, RecomputePoint point, const Limits& limits);
  std::optional<DepthModel::Floor> floor_of(size_t frame);
  [[nodiscard]] bool moves_activations(size_t frame) const {
    return frames_[frame].variant.offload.activations != Space::device;
  }
  // search_offload.cc
  [[nodiscard]] OffloadTargets targets_of(const Spot& spot) const;
  [[nodiscard]] Variant variant_of(const Spot& spot) const;
  [[nodiscard]] size_t frame_of(size_t capacity, const OffloadTargets& targets, int64_t prefetch) const;
  // Layers whose parts all have one offload target each, by the frame that has these offload targets for all layers.
  struct Stretch {
    size_t frame = 0;
    double share = 0;
  };
  // True if a spot is known by those of its stretches: of deep models, and of splits among many layers.
  [[nodiscard]] bool is_stretched(const Spot& spot) const;
  std::vector<Stretch> stretches_of(const Spot& spot);
  Usage of_stretches(const Spot& spot);
  // The needs of a capacity at one point, if nothing moves but, in one way, activations.
  struct Base {
    std::array<double, 3> runs{}, seconds{}, io{}, disk{};  // by program
    std::vector<int64_t> transient;                         // of the device, by chunk
    const DepthModel* model = nullptr;
    int64_t host = 0, on_disk = 0;  // of activations
    int64_t floor = 0;              // of the device, at any point
    int64_t programs = 0;           // of the host
    std::array<int64_t, 3> persistent{};
  };
  const Base& base_of(size_t capacity, const OffloadChoice& choice, bool moves_activations,
                      RecomputePoint point);
  const DepthModel& model_like(Variant variant, const std::vector<int64_t>& chunks, RecomputePoint point);
  [[nodiscard]] Usage usage_like(const DepthModel& model, size_t chunk) const;
  const OffloadCosts& costs_of(size_t capacity, bool updates_in_backward);
  [[nodiscard]] bool updates_in_backward(size_t capacity, const OffloadChoice& choice) const;
  // At no point in particular; at one, without copies on the device, and those.
  Least least_of(size_t capacity, const OffloadChoice& choice);
  // `by_point`: of segments with the seconds of their point alone, for which no other program is measured.
  Least least_at(const Spot& spot, bool by_point = false);
  Least least_at(const Spot& spot, const OffloadChoice& choice, bool by_point = false);
  int64_t transient_at(Spot spot);
  int64_t least_transient_at(const Spot& spot);
  bool exceeds_by_still(const Spot& spot, const Limits& limits);
  bool exceeds_by_sooner(const Spot& spot, const Limits& limits);
  // search_blocks.cc
  [[nodiscard]] bool has_shares(const Spot& spot) const;
  [[nodiscard]] Spot level_of_twin(const Spot& spot, RecomputePoint point) const;
  const DepthModel& still_model(const Spot& spot, RecomputePoint point);
  const DepthModel* model_of_weights(const Spot& spot);
  int64_t across_blocks(const Spot& spot);
  const DepthModel& still_block(const Spot& spot);
  int64_t alive_in_segments_at(const Spot& spot);
  Base base_by_blocks(const Spot& spot);
  bool exceeds_beside(const Spot& spot, int64_t transient, const Limits& limits);
  bool exceeds_by_blocks(const Spot& spot, const Limits& limits);
  bool exceeds_by_segments(const Spot& spot, const Limits& limits);
  bool is_line_beyond(const Spot& line, const DepthModel& first, const DepthModel& rest,
                      const Limits& limits);
  bool is_line_beyond(const Spot& line, const Limits& limits);
  bool may_be_at(const Spot& spot, const Limits& limits);
  bool may_be_by_sums(const Spot& spot, const Limits& limits);
  Base base_between(const Spot& less, const Spot& more);
  bool may_be_between(const Spot& less, const Spot& more, const Limits& limits);
  bool may_be_between_few(const Spot& less, const Limits& limits);
  void add_parts(size_t capacity, const OffloadChoice& choice, const Base& base, Least& least);
  [[nodiscard]] bool exceeds(const Least& least, const Limits& limits) const;
  [[nodiscard]] OffloadChoice choice_with(size_t frame, const Split& split, const PartTarget& target) const;
  // search_splits.cc
  [[nodiscard]] std::vector<Split> splits_of(size_t frame) const;
  [[nodiscard]] PartTarget target_in(const Split& split, int64_t moved, int64_t on_disk) const;
  // The fewest and the most layers whose part moves.
  [[nodiscard]] std::pair<int64_t, int64_t> range_of(const Split& split) const;
  bool is_pointless(size_t frame, const Split& split, const Limits& limits);
  Least least_of_split(size_t frame, const Split& split, const Limits& limits);
  Least least_of_split_at(Spot spot, size_t few, const Limits& limits);
  Least least_of_activations_split_at(Spot spot, size_t few, size_t all, const Limits& limits);
  class Mix;
  double copied_share_of_layers();
  Usage of_split(const Spot& spot);
  [[nodiscard]] bool is_out_of_reach(const Spot& spot, const Mix& mix, const Limits& limits);
  [[nodiscard]] std::vector<int64_t> segments_of_splits() const;
  std::vector<Spot> choices_worth(const Spot& spot);
  void each_of_split(size_t frame, const Split& split, Limits& limits, const Visit& visit);
  void each_count(Spot spot, Limits& limits, const Visit& visit);
  void each_target_in(const Split& split, const std::function<void(const PartTarget&)>& visit) const;
  // search_offload.cc
  bool gains_by_prefetch(const Spot& spot);
  // Frames of a capacity and splits of them, to be looked at, the most promising first.
  struct Entry {
    size_t frame = 0;
    Split split{};
    Least least{};
  };
  std::vector<Entry> entries_of(size_t capacity, const Limits& limits);

  [[nodiscard]] bool exceeds(const DepthModel::Floor& least, const Limits& limits) const;
  [[nodiscard]] int64_t counted(const Least& least, const Limits& limits) const;
  // All three compare frames.
  [[nodiscard]] bool has_no_less_capacity(size_t larger, size_t frame) const;
  [[nodiscard]] bool takes_no_less(size_t larger, size_t frame) const;
  [[nodiscard]] bool takes_no_less_on_device(size_t larger, size_t frame) const;
  void find_capacities_without_less();
  // Returns true if a capacity before this place, in the order of their sizes, takes no more.
  [[nodiscard]] bool takes_no_less_than_before(size_t place) const;
  // Frames that are too large for limits, in all or for the device alone: what takes no less is so too.
  struct Excluded {
    std::vector<size_t> everywhere, on_device;  // frames
    [[nodiscard]] bool holds(const Search& search, size_t frame) const;
  };
  [[nodiscard]] bool may_be_among(size_t frame, const Limits& limits) const;
  bool is_excluded(size_t frame, const Limits& limits, Excluded& excluded);
  Excluded excluded_from_the_start(const Limits& limits);
  [[nodiscard]] int64_t slack(const Spot& spot) const;

  // Visits what may be the best of all within the limits: of a line the ends and the least of what keeps
  // them.
  void each(Limits limits, const Visit& visit);
  void each_of_entry(const Entry& entry, Excluded& excluded, Limits& limits, const Visit& visit);
  void each_of_frame(size_t frame, Limits& limits, const Visit& visit);
  void each_of_segments(size_t frame, Limits& limits, const Visit& visit);
  void each_of_line(Spot spot, Limits& limits, const Visit& visit);
  void each_of_shallow_line(Spot line, Limits& limits, const Visit& visit);
  void each_of_deep_line(Spot spot, const StackRange& stack, Limits& limits, const Visit& visit);
  void offer(Spot spot, Limits& limits, const Visit& visit);
  [[nodiscard]] double overrun(const Spot& spot, const Limits& limits) const {
    return overrun(spot.usage, slack(spot), limits);
  }
  [[nodiscard]] double overrun(const Usage& usage, int64_t slack, const Limits& limits) const;
  // search_least.cc
  std::optional<Candidate> least(const Limits& limits, const LayOut& lay_out);
  std::optional<Candidate> least_near(Limits limits, const LayOut& lay_out, double share);
  struct LeastFound {
    std::optional<Candidate> candidate;
    int64_t bytes = kOpenBytes;   // that it takes
    int64_t missed = kOpenBytes;  // the least bound of those whose layouts do not keep the limits
  };
  std::pair<int64_t, std::vector<std::pair<int64_t, Spot>>> spots_near_least(const Limits& limits,
                                                                             double share);
  LeastFound least_round(const Limits& limits, const LayOut& lay_out, double share);
  void add_larger_capacities(std::vector<std::pair<int64_t, Spot>>& spots, const Limits& limits,
                             int64_t least);
  void add_prefetching(std::vector<std::pair<int64_t, Spot>>& spots, const Limits& limits, int64_t most);
  bool is_covered(size_t frame, const Limits& limits);
  [[nodiscard]] bool fits_easily(const Least& least, const Limits& limits) const;
  [[nodiscard]] Budget at_least_possible(Budget budget);
  // With room for what estimates of deep models may be off.
  static Budget nearly(Budget budget);
  std::optional<Spot> fastest_spot(Limits limits);
  Spot preferred(const Spot& fastest, Limits limits);
  // The spot with all numbers of rows of logits, each with and without graphs where a device makes some.
  [[nodiscard]] std::vector<Spot> choices_at(const Spot& spot) const;
  void offer_all(const Spot& spot, Limits& limits, const Visit& visit);
  void add_launches(const Spot& spot, Usage& usage) const;
  [[nodiscard]] int64_t arena_bytes(const Spot& spot) const;
  [[nodiscard]] bool is_rejected(const Spot& spot) const;
  void forget_layouts();
  void reject(const Spot& spot, const Candidate& laid_out);

  const PlanRequest& request_;
  int64_t most_ops_;
  int64_t layers_;
  std::vector<int64_t> depths_;  // of each stack
  bool is_deep_;
  std::vector<RecomputePoint> points_;  // that may be chosen, ascending
  KnownPrograms programs_;
  std::vector<Capacity> capacities_;
  std::vector<Frame> frames_;
  // Facts that are found once of choices and capacities.
  struct Known {
    bool has_many_layers = false;
    std::map<std::pair<OffloadTargets, int64_t>, size_t> place_of;  // of a choice
    std::map<std::tuple<size_t, bool, RecomputePoint, Space, int64_t>, Base> bases;
    std::map<std::pair<bool, bool>, OffloadCosts> costs;  // by accumulation, and updates in the backward pass
    std::map<bool, int64_t> across;  // BlockShares::across of moved gradients, by accumulation
    std::vector<std::vector<char>>
        no_less_capacity;                            // by capacities: the first is no smaller than the second
    std::optional<std::vector<size_t>> most_moving;  // by the frame's place in its capacity
    std::vector<size_t> by_size;                     // capacities, the smallest first
    std::optional<double> copied_share;              // copied_share_of_layers
    std::set<size_t> done;  // of the least: frames whose device bytes are those of others too
  };
  Known known_;
  std::vector<OffloadChoice> choices_;  // of the frames of each capacity, in their order
  static Key key_of(const Spot& spot);
  [[nodiscard]] Key line_of(Spot spot) const;
  std::map<Key, const DepthModel*> models_;           // of programs_
  std::set<std::tuple<Key, size_t, bool>> rejected_;  // their layout takes more than there is
  int64_t margin_ = 0;                                // device bytes that all must leave free
  std::map<Key, int64_t> slack_;                      // by line: what layouts took above their bound
  std::map<Key, double> late_;  // by line: how many times as long they take as was estimated
  // The least memory of all, by the limits that stay: host, disk, and which of the memories has one.
  using Others = std::tuple<std::optional<int64_t>, std::optional<int64_t>, bool, bool>;
  std::map<Others, Candidate> smallest_;
  int64_t ops_laid_out_ = 0;
  bool ended_early_ = false;
};

// The plan that a search of so much work finds; what it has measured until then is what it chooses from.
Plan make_plan(const PlanRequest& request, int64_t most_ops);

// Returns true if a candidate keeps all limits.
bool within(const Candidate& candidate, const Budget& budget, const HostNeeds& host);

}  // namespace plimsoll
