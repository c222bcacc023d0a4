// Parts in several places: some layers on the device, others on the host or on disk.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/units.h"
#include "plan/search/places.h"
#include "plan/search/search.h"

namespace plimsoll {

std::vector<Search::Split> Search::splits_of(size_t frame) const {
  std::vector<Split> splits;
  const Variant& variant = frames_[frame].variant;
  const OffloadChoice& choice = variant.offload;
  const bool is_stated = request_.choices.offload && !request_.target.targets.empty();
  if (layers_ == 1 || request_.choices.targets || !request_.choices.in_part ||
      (choice.prefetch > 1 && !request_.choices.prefetch) || (is_stated && !frames_[frame].offered))
    return splits;
  const auto has = [&](Space space) {
    return std::ranges::find(request_.target.targets, space) != request_.target.targets.end();
  };
  const bool disk = has(Space::disk), host = has(Space::host);
  for (const Part part : kEveryPart) {
    const auto add = [&](const Split& split) {
      const auto [fewest, most] = range_of(split);
      if (fewest <= most) splits.push_back(split);
    };
    if (choice.of(part) == PartTarget(Space::host) && disk)
      add({.part = part, .disk = true, .host = true, .device = false});
    if (choice.of(part).any() || is_stated) continue;
    if (part == Part::gradients && variant.update_in_backward) continue;
    if (host) add({.part = part, .disk = false, .host = true, .device = true});
    if (disk) add({.part = part, .disk = true, .host = false, .device = true});
    if (disk && host) add({.part = part, .disk = true, .host = true, .device = true});
  }
  return splits;
}

// Activations of the last layer never move.
std::pair<int64_t, int64_t> Search::range_of(const Split& split) const {
  const int64_t layers = split.part == Part::activations ? layers_ - 1 : layers_;
  if (!split.device) return {layers, layers >= 2 ? layers : 0};
  return {split.disk && split.host ? 2 : 1, layers - 1};
}

PartTarget Search::target_in(const Split& split, int64_t moved, int64_t on_disk) const {
  if (!split.device) return {on_disk, PartTarget::kEveryBlock};
  if (!split.host) return {moved, 0};
  if (!split.disk) return {0, moved};
  return {on_disk, moved - on_disk};
}

void Search::each_target_in(const Split& split, const std::function<void(const PartTarget&)>& visit) const {
  const auto [fewest, most] = range_of(split);
  for (int64_t moved = fewest; moved <= most; ++moved) {
    const bool chooses = split.disk && split.host;
    for (int64_t on_disk = 1; on_disk < (chooses ? moved : 2); ++on_disk)
      visit(target_in(split, moved, on_disk));
  }
}

// With no more layers moved, and of these on disk, than the limits ask for; of the device, with all moved.
Search::Least Search::least_of_split(size_t frame, const Split& split, const Limits& limits) {
  const size_t capacity = frames_[frame].capacity;
  auto [moved, most] = range_of(split);
  const bool knows = split.part != Part::activations;
  OffloadChoice choice = choice_with(frame, split, split.device ? Space::device : Space::host);
  const bool updates = updates_in_backward(capacity, choice_with(frame, split, Space::host));
  const OffloadCosts& costs = costs_of(capacity, updates);
  OffloadChoice all = choice_with(frame, split, split.host ? Space::host : Space::disk);
  Least least = least_of(capacity, all);
  const int64_t device = least.device;
  const Space target = split.host ? Space::host : Space::disk;
  if (knows && split.device && limits.budget.device_bytes) {
    const int64_t freed = costs.of_first(split.part, target, PartTarget::kEveryBlock).freed;
    moved = first_place(moved, most, [&](int64_t count) {
      return device + freed - costs.of_first(split.part, target, count).freed <= *limits.budget.device_bytes;
    });
  }
  int64_t on_disk = 1;
  if (knows && split.disk && split.host && limits.budget.host_bytes) {
    const int64_t others = least_of(capacity, choice_with(frame, split, Space::device)).host +
                           least.programs + request_.target.host.total();
    on_disk = first_place(1, std::max<int64_t>(1, moved - 1), [&](int64_t count) {
      return others + costs.of(split.part, Space::host, target_in(split, moved, count)).taken <=
             *limits.budget.host_bytes;
    });
  }
  least = least_of(capacity, knows ? choice_with(frame, split, target_in(split, moved, on_disk)) : choice);
  least.device = device;
  return least;
}

// The least that a spot of a split takes and costs, for parts that are no activations: at its point, with as few layers moved as
// the device can hold the rest of and, where the rest is on the host, as few on disk as the host can. `few`: the frame that
// moves as little of the part as the split may.
Search::Least Search::least_of_split_at(Spot spot, size_t few, const Limits& limits) {
  const Split split = spot.split;
  const size_t frame = spot.frame, capacity = frames_[frame].capacity;
  spot.frame = few;
  spot.split = {};
  const Least of_few = least_at(spot);
  auto [moved, most] = range_of(split);
  const OffloadCosts& costs =
      costs_of(capacity, updates_in_backward(capacity, choice_with(frame, split, Space::host)));
  if (split.device && limits.budget.device_bytes) {
    const Space target = split.host ? Space::host : Space::disk;
    const int64_t device = of_few.device + least_transient_at(spot);
    moved = first_place(moved, most, [&](int64_t count) {
      return device - costs.of_first(split.part, target, count).freed <= *limits.budget.device_bytes;
    });
  }
  int64_t on_disk = 1;
  if (split.disk && split.host && limits.budget.host_bytes) {
    const int64_t others = least_of(capacity, choice_with(frame, split, Space::device)).host +
                           of_few.programs + request_.target.host.total();
    on_disk = first_place(1, std::max<int64_t>(1, moved - 1), [&](int64_t count) {
      return others + costs.of(split.part, Space::host, target_in(split, moved, count)).taken <=
             *limits.budget.host_bytes;
    });
  }
  Least least = least_at(spot, choice_with(frame, split, target_in(split, moved, on_disk)));
  least.device = 0;
  if (split.disk) least.host = std::min(least.host, of_few.host);  // more of it may be on disk
  return least;
}

// The same for activations: by programs that move nothing else, with as small a share of the layers moved as the device can hold
// the rest of (of_split).
Search::Least Search::least_of_activations_split_at(Spot spot, size_t few, size_t all, const Limits& limits) {
  const Split split = spot.split;
  spot.split = {};
  Spot with_all = spot;
  spot.frame = few;
  with_all.frame = all;
  Least least = least_at(spot);
  const Least of_all = least_at(with_all);
  const auto stays = static_cast<double>(least_transient_at(spot));
  const auto moves = static_cast<double>(least_transient_at(with_all));
  double most = std::max(stays, moves);
  if (split.device && limits.budget.device_bytes)
    most = static_cast<double>(*limits.budget.device_bytes - least.device);
  least.device += static_cast<int64_t>(std::min(stays, moves));
  if (stays <= most || moves >= stays) return least;
  const double share = std::min(1.0, (stays - most) / (stays - moves));
  least.seconds += share * std::max(0.0, of_all.seconds - least.seconds);
  if (!split.disk) least.host += static_cast<int64_t>(share * static_cast<double>(of_all.host - least.host));
  return least;
}

// A search for the least memory: a part takes less of the device with all of it moved, where host and
// disk have room for that with some to spare.
bool Search::is_pointless(size_t frame, const Split& split, const Limits& limits) {
  if (!limits.smallest_first || limits.of_ties || !limits.is_open()) return false;
  const size_t capacity = frames_[frame].capacity;
  return std::ranges::any_of(request_.target.targets, [&](Space target) {
    return fits_easily(least_of(capacity, choice_with(frame, split, target)), limits);
  });
}
void Search::each_of_split(size_t frame, const Split& split, Limits& limits, const Visit& visit) {
  const size_t capacity = frames_[frame].capacity;
  const int64_t prefetch = frames_[frame].variant.offload.prefetch;
  const auto frame_with = [&](Space target) {
    return frame_of(capacity, choice_with(frame, split, target).targets(), prefetch);
  };
  const size_t few = frame_with(split.device ? Space::device : Space::host);
  const size_t all = frame_with(split.host ? Space::host : Space::disk);
  const bool knows = split.part != Part::activations;
  const auto is_slow = [&](const Spot& spot) {
    return exceeds(
        knows ? least_of_split_at(spot, few, limits) : least_of_activations_split_at(spot, few, all, limits),
        limits);
  };
  const auto is_large = [&](Spot spot) {
    spot.split = {};
    spot.frame = few;
    Least least = knows ? least_at(spot) : least_of(capacity, frames_[few].variant.offload);
    int64_t on_host = least.host;
    // Between host and disk, as much as the host has no room for is on disk.
    if (split.disk)
      on_host = std::min(on_host, least_of(capacity, choice_with(frame, split, Space::disk)).host);
    Spot with_all = spot;
    with_all.frame = all;
    if (knows) least = least_at(with_all);
    // Among few layers, copies of the last one's are more than what the first ones free.
    const auto exceeds_beside = [&](int64_t some, int64_t all_of_it) {
      return exceeds(
          Least{.device = least.device + std::min(some, all_of_it), .host = std::min(on_host, least.host)},
          limits);
    };
    if (!knows) return exceeds_beside(0, 0);
    // First by what is known before either is measured.
    return exceeds_beside(least_transient_at(spot), least_transient_at(with_all)) ||
           exceeds_beside(transient_at(spot), transient_at(with_all));
  };
  // The fewest rows of logits take the least memory; their seconds count in segments alone.
  const auto offer_choices = [&](const Spot& spot) {
    Spot small = spot;
    small.chunk = frames_[frame].chunks.size() - 1;
    const bool all_slow = spot.segment == 1 ? is_slow(small) : std::ranges::all_of(choices_at(spot), is_slow);
    if (all_slow || is_large(small)) return;
    for (const Spot& choice : choices_worth(spot))
      if (!is_slow(choice) && !is_large(choice)) each_count(choice, limits, visit);
  };
  for (Spot spot : levels_of_frame(frame)) {
    spot.split = split;
    offer_choices(spot);
  }
  for (const int64_t segment : segments_of_splits())
    offer_choices({.frame = frame,
                   .first = RecomputePoint::block,
                   .rest = RecomputePoint::block,
                   .segment = segment,
                   .split = split});
}

// Segments that take the least memory are of about as many layers as there are of them. Where each is measured in full, sizes
// double.
std::vector<int64_t> Search::segments_of_splits() const {
  std::vector<int64_t> segments;
  const int64_t most = std::ranges::max(depths_);
  const auto is_looked_at = [&](int64_t segment) {
    if (!known_.has_many_layers || segment * segment > 4 * most) return !known_.has_many_layers;
    return is_deep_ ? ceil_div(most, ceil_div(most, segment)) == segment
                    : std::has_single_bit(static_cast<uint64_t>(segment));
  };
  std::ranges::copy_if(segment_sizes(), std::back_inserter(segments), is_looked_at);
  return segments;
}

// Fewer rows of logits only where they take less memory of the device, and graphs where launches take time: of
// deep models, by one that moves as the frame does.
std::vector<Search::Spot> Search::choices_worth(const Spot& spot) {
  std::vector<Spot> choices = choices_at(spot);
  if (!known_.has_many_layers) return choices;
  std::vector<Spot> worth;
  std::optional<Usage> before;
  for (const Spot& choice : choices) {
    Spot whole = choice;
    whole.split = {};
    whole.target = {};
    if (!may_measure(whole)) continue;
    if (choice.graphs && before) {
      const LaunchCost cost = launch_cost(before->runs, request_.target.device, UseGraphs::off);
      if (cost.seconds == 0) continue;
      worth.push_back(choice);
      continue;
    }
    const Usage usage = bytes_and_seconds(whole);
    if (before && before->of(Space::device) == usage.of(Space::device) && before->seconds <= usage.seconds)
      continue;
    before = usage;
    worth.push_back(choice);
  }
  return worth;
}

// The space of the part's last layers: what is outside of the layers is there.
Space last_space(const PartTarget& target) {
  if (target.stays()) return Space::device;
  return target.on_host > 0 ? Space::host : Space::disk;
}

// The most that an update copies at a time of a layer, as a share of the most that it copies of anything.
double Search::copied_share_of_layers() {
  if (known_.copied_share) return *known_.copied_share;
  const OffloadChoice& choice = choices_.front();  // slices are alike in all
  int64_t outside = 0, of_layers = 0;
  const Graph forward = build_forward(request_.workload.experiment, {});
  for (const Tensor& tensor : forward.tensors()) {
    const int64_t elements = tensor.shape.elements();
    const bool moves = elements * size_of(DType::f32) >= choice.smallest_bytes;
    if (tensor.role != Role::trainable_weight || !moves) continue;
    int64_t& most = tensor.block == kNoBlock ? outside : of_layers;
    most = std::max(most, std::min(elements, choice.slice_elements));
  }
  const bool has_more_outside = of_layers > 0 && outside > of_layers;
  const double share = static_cast<double>(of_layers) / static_cast<double>(std::max<int64_t>(outside, 1));
  return known_.copied_share.emplace(has_more_outside ? share : 1.0);
}

// The usage of a deep model whose part is in several places, by variants that have it in one of them.
class Search::Mix {
 public:
  Mix(Search& search, const Spot& spot) : layers_(search.layers_), part_(spot.split.part) {
    const Frame& frame = search.frames_[spot.frame];
    for (const Space space : {Space::device, Space::host, Space::disk}) {
      const Split& split = spot.split;
      if (!(space == Space::device ? split.device : space == Space::host ? split.host : split.disk)) continue;
      Spot whole = spot;
      OffloadTargets targets = frame.variant.offload.targets();
      targets[static_cast<size_t>(part_)] = space;
      whole.frame = search.frame_of(frame.capacity, targets, frame.variant.offload.prefetch);
      whole.split = {};
      whole.target = {};
      ends_[index(space)] = search.bytes_and_seconds(whole);
      last_ = space;
    }
    if (part_ != Part::activations)
      costs_ =
          &search.costs_of(frame.capacity, search.updates_in_backward(frame.capacity, frame.variant.offload));
    outside_ = costs_ == nullptr ? 0 : costs_->outside(part_, last_);
    const OffloadChoice& choice = frame.variant.offload;
    if (spot.split.device && costs_ != nullptr && !choice.states.any() && !choice.gradients.any())
      copied_share_ = search.copied_share_of_layers();
  }

  [[nodiscard]] const Usage& end(Space space) const { return *ends_[index(space)]; }
  [[nodiscard]] bool has(Space space) const { return ends_[index(space)].has_value(); }

  // Seconds are those of each offload target's share of the layers. Copies on the device are those of the offload target that has
  // most of them; activations wait side by side.
  [[nodiscard]] Usage at(const PartTarget& target) const {
    const auto all = static_cast<double>(layers_);
    const int64_t moved = std::min(target.moved(), layers_);
    std::array<double, 3> shares = {static_cast<double>(layers_ - moved) / all,
                                    static_cast<double>(moved - target.on_disk) / all,
                                    static_cast<double>(target.on_disk) / all};
    for (double& share : shares) share *= 1 - outside_;
    shares[index(last_space(target))] += outside_;
    Usage usage;
    std::array<double, 3> transient{}, calls{};
    double ops = 0, programs = 0, traffic = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (!ends_[i] || shares[i] == 0) continue;
      const Usage& end = *ends_[i];
      usage.seconds += shares[i] * end.seconds;
      ops += shares[i] * static_cast<double>(end.ops);
      programs += shares[i] * static_cast<double>(end.program_bytes);
      traffic += shares[i] * static_cast<double>(end.disk_traffic);
      for (size_t space = 0; space < transient.size(); ++space) {
        auto bytes = static_cast<double>(end.bytes[space] - end.persistent[space]);
        if (space == index(Space::device) && last_space(target) == Space::device) bytes *= copied_share_;
        transient[space] =
            costs_ == nullptr ? transient[space] + shares[i] * bytes : std::max(transient[space], bytes);
      }
      for (size_t run = 0; run < calls.size(); ++run) {
        const double before = usage.runs[run].seconds;
        usage.runs[run] = end.runs[run];
        usage.runs[run].seconds = before + shares[i] * end.runs[run].seconds;
        calls[run] += shares[i] * static_cast<double>(end.runs[run].calls.calls);
      }
    }
    for (size_t run = 0; run < calls.size(); ++run) usage.runs[run].calls.calls = std::llround(calls[run]);
    usage.ops = std::llround(ops);
    usage.program_bytes = std::llround(programs);
    usage.disk_traffic = std::llround(traffic);
    usage.persistent = persistent_at(target);
    for (size_t space = 0; space < transient.size(); ++space)
      usage.bytes[space] = usage.persistent[space] + std::llround(transient[space]);
    return usage;
  }

  [[nodiscard]] std::array<int64_t, 3> persistent_at(const PartTarget& target) const {
    std::array<int64_t, 3> bytes = end(last_).persistent;
    if (costs_ == nullptr) return bytes;
    const auto move = [&](const PartTarget& where, int64_t times) {
      for (const Space space : {Space::host, Space::disk}) {
        const OffloadCosts::Amount amount = costs_->of(part_, space, where);
        bytes[index(Space::device)] -= times * amount.freed;
        bytes[index(space)] += times * amount.taken;
      }
    };
    move(last_, -1);
    move(target, 1);
    return bytes;
  }

 private:
  int64_t layers_;
  Part part_;
  Space last_ = Space::device;
  std::array<std::optional<Usage>, 3> ends_;
  const OffloadCosts* costs_ = nullptr;  // none of activations
  double outside_ = 0;                   // share of what is of no layer
  double copied_share_ = 1;              // of copies, where what is of no layer stays
};

Usage Search::of_split(const Spot& spot) { return Mix(*this, spot).at(spot.target); }

// Returns whether a split is slower than what is known even with as little moved as it may, or too large with all.
bool Search::is_out_of_reach(const Spot& spot, const Mix& mix, const Limits& limits) {
  const Split& split = spot.split;
  const auto& few = mix.end(split.device ? Space::device : Space::host);
  const auto& all = mix.end(split.host ? Space::host : Space::disk);
  int64_t device = mix.persistent_at(split.host ? Space::host : Space::disk)[index(Space::device)];
  int64_t transient = std::numeric_limits<int64_t>::max();
  for (const Space space : {Space::device, Space::host, Space::disk})
    if (mix.has(space))
      transient = std::min(
          transient, mix.end(space).of(Space::device) - mix.end(space).persistent[index(Space::device)]);
  device += transient;
  return std::min(few.seconds, all.seconds) >= limits.seconds ||
         !keeps(device + slack(spot), limits.budget.device_bytes) ||
         (!limits.of_ties && device >= limits.bytes);
}

// The fewest layers that move within the limits, of them the fewest on disk; and the most.
void Search::each_count(Spot spot, Limits& limits, const Visit& visit) {
  const Split& split = spot.split;
  const auto [fewest, most] = range_of(split);
  spot.target = target_in(split, most, 1);
  if (!may_measure(spot)) return;
  std::optional<Mix> mix;
  if (is_stretched(spot)) mix.emplace(*this, spot);
  if (mix && is_out_of_reach(spot, *mix, limits)) return;
  // More layers that move take less of the device alone, so that the fewest are found by its limits.
  Limits of_device, of_host;
  of_device.budget.device_bytes = limits.budget.device_bytes;
  of_device.budget.process_bytes = limits.budget.process_bytes;
  of_device.budget.disk_in_memory = limits.budget.disk_in_memory;
  of_host.budget.host_bytes = limits.budget.host_bytes;
  const int64_t slack_bytes = slack(spot);
  int64_t graph_bytes = -1;
  const auto over = [&](const PartTarget& target, const Limits& of) {
    spot.target = target;
    if (!mix || graph_bytes < 0) {
      spot.usage = mix ? finished(spot, mix->at(target)) : usage_at(spot);
      graph_bytes = spot.usage.graph_bytes;
    } else {
      spot.usage = mix->at(target);
      spot.usage.bytes[index(Space::device)] += request_.target.own_memory ? graph_bytes : 0;
      spot.usage.bytes[index(Space::disk)] += request_.choices.kept_bytes;
    }
    return overrun(spot.usage, slack_bytes, of) > 0;
  };
  const bool chooses = split.disk && split.host;
  const auto place = [&](int64_t moved) {
    if (!chooses || !limits.budget.host_bytes) return target_in(split, moved, 1);
    return target_in(split, moved, first_place(1, moved - 1, [&](int64_t on_disk) {
                       return !over(target_in(split, moved, on_disk), of_host);
                     }));
  };
  int64_t low = first_place(fewest, most, [&](int64_t moved) { return !over(place(moved), of_device); });
  const auto is_out = [&](int64_t moved) {
    const PartTarget target = place(moved);
    const bool exceeds = over(target, limits);
    return exceeds || is_rejected(spot);
  };
  while (low < most && is_out(low) && !over(place(low), limits)) ++low;
  if (is_out(low)) return;
  spot.target = place(low);
  offer(spot, limits, visit);
  if (!limits.smallest_first) return;
  int64_t high = low;
  for (int64_t step = most - low; step > 0; step /= 2)
    while (high + step <= most && !over(place(high + step), limits)) high += step;
  while (high > low && is_out(high)) --high;
  if (high == low) return;
  spot.target = place(high);
  offer(spot, limits, visit);
}
}  // namespace plimsoll
