#include "plan/search/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "plan/search/places.h"

namespace plimsoll {
namespace {

// Tries of a question with room for the largest miss, after kMostLaidOut.
constexpr int kLastLayouts = 4;
// Layouts that were fast by estimate alone, until the best of them is taken.
constexpr int kMostLate = 4;
constexpr int64_t kEstimateError = 20;  // a twentieth: deep models are known by a few of their layers
constexpr double kSameSeconds = 1e-9;   // a share
// The share of the tie that is left to layouts that take longer than their estimates: what is chosen at the
// tie's very end would be laid out for nothing.
constexpr double kLeftOfTie = 0.1;
// The share of the tie by which deep models' variants must be faster to be looked for.
constexpr double kWorthOfTie = 0.05;

// Bytes of files that count as memory, where the disk is memory.
int64_t files_in_memory(const Usage& usage, const Budget& budget) {
  return budget.disk_in_memory ? usage.of(Space::disk) : 0;
}

// Less disk traffic, then less host memory for what leaves the card, then less memory, then less time.
bool is_preferred(const Usage& a, const Usage& b) {
  const auto rank = [](const Usage& u) {
    const int64_t all = u.of(Space::device) + u.of(Space::host) + u.program_bytes;
    return std::tuple(u.disk_traffic, u.of(Space::host), all, u.seconds);
  };
  return rank(a) < rank(b);
}

}  // namespace

bool within(const Candidate& candidate, const Budget& budget, const HostNeeds& host) {
  const int64_t host_bytes = host.total() + candidate.host_bytes;
  const int64_t device_bytes = candidate.arena_bytes + candidate.graph_bytes;
  return keeps(device_bytes, budget.device_bytes) && keeps(host_bytes, budget.host_bytes) &&
         keeps(candidate.disk_bytes, budget.disk_bytes) &&
         keeps(device_bytes + host_bytes + (budget.disk_in_memory ? candidate.disk_bytes : 0),
               budget.process_bytes);
}

bool Search::moves_all_of(const OffloadChoice& most, const OffloadChoice& some) {
  return std::ranges::all_of(kEveryPart,
                             [&](Part part) { return most.of(part).moved() >= some.of(part).moved(); });
}

bool Search::moves_no_more(const OffloadChoice& some, const OffloadChoice& most) {
  const auto uses_disk = [](const OffloadChoice& choice) {
    return std::ranges::any_of(kEveryPart, [&](Part part) { return choice.of(part).on_disk > 0; });
  };
  return moves_all_of(most, some) && (uses_disk(most) || !uses_disk(some));
}

int64_t Search::process_bytes(const Usage& usage) {
  return usage.of(Space::device) + usage.of(Space::host) + usage.program_bytes;
}

Search::Key Search::key_of(const Spot& spot) {
  return {spot.frame,   spot.first,       spot.rest,           spot.first_layers,
          spot.segment, spot.split.key(), spot.target.on_disk, spot.target.on_host};
}

// Lines of one pair of points differ in the stack that has both.
Search::Key Search::line_of(Spot spot) const {
  int64_t line = 0;
  for (const StackRange& stack : stack_ranges()) {
    const int64_t first = stack.first_of(spot.first_layers);
    line += first == 0 ? 0 : first == stack.depth ? 2 : 1;
  }
  spot.first_layers = spot.first == spot.rest ? 0 : line;
  spot.segment = std::min<int64_t>(spot.segment, 3);
  spot.target = {};
  return key_of(spot);
}

// Deep models: one for a line, one for segments of two and one for all others. Shallow ones: one for every
// choice.
Search::Key Search::model_key(const Spot& spot) const {
  if (!is_deep_ || !frames_[spot.frame].whole || spot.split.any()) return key_of(spot);
  return line_of(spot);
}

std::optional<DepthModel::Floor> Search::floor_of(const Variant& variant) {
  const auto by_sums = least_of(variant);
  if (!by_sums) return std::nullopt;
  DepthModel::Floor most{by_sums->device, by_sums->host};
  for (size_t frame = 0; frame < frames_.size(); ++frame) {
    if (frames_[frame].variant.offload != variant.offload ||
        frames_[frame].variant.micro_batch != variant.micro_batch ||
        frames_[frame].variant.micro_tokens != variant.micro_tokens)
      continue;
    for (size_t other = 0; other < frames_.size(); ++other) {
      if (!frames_[other].offered) continue;
      const bool everywhere = takes_no_less(frame, other);
      if (!everywhere && !takes_no_less_on_device(frame, other)) continue;
      const auto floor = floor_of(other);
      if (!floor) return std::nullopt;
      most.device = std::max(most.device, floor->device);
      if (everywhere) most.host = std::max(most.host, floor->host);
    }
  }
  return most;
}

std::vector<Search::StackRange> Search::stack_ranges() const {
  std::vector<StackRange> ranges;
  for (const int64_t depth : depths_)
    ranges.push_back({ranges.empty() ? 0 : ranges.back().begin + ranges.back().depth, depth});
  return ranges;
}

std::vector<StackPoints> Search::points_of(const Spot& spot) const {
  std::vector<StackPoints> points;
  for (const StackRange& stack : stack_ranges()) {
    const int64_t first = stack.first_of(spot.first_layers);
    points.push_back({first > 0 ? spot.first : spot.rest, first < stack.depth ? spot.rest : spot.first});
  }
  return points;
}

bool Search::is_known(const Spot& spot) const { return models_.contains(model_key(spot)); }

// At its limit of work the search continues among what it has measured. The first of all is always measured, so
// that there is an answer.
bool Search::may_measure(const Spot& spot) {
  if (programs_.ops_built() + ops_laid_out_ <= most_ops_) return true;
  if (models_.empty()) return true;
  const auto is_measured = [&](const Stretch& stretch) {
    Spot whole = spot;
    whole.frame = stretch.frame;
    whole.split = {};
    whole.target = {};
    return is_known(whole);
  };
  if (is_stretched(spot) ? std::ranges::all_of(stretches_of(spot), is_measured) : is_known(spot)) return true;
  ended_early_ = true;
  return false;
}

const DepthModel& Search::model_of(const Spot& spot) {
  const Key key = model_key(spot);
  const DepthModel*& model = models_[key];
  if (model != nullptr) return *model;
  const Frame& frame = frames_[spot.frame];
  if (tells_by_depth(spot)) {
    model = spot.segment > 1 ? &DepthModel::segments(programs_, frame.variant, frame.chunks,
                                                     DepthModel::segments_of(spot.segment))
                             : &DepthModel::mixture(programs_, frame.variant, frame.chunks, points_of(spot));
    return *model;
  }
  Variant variant = variant_of(spot);
  variant.recompute = choice_of(spot);
  model = &DepthModel::exact(programs_, variant, frame.chunks);
  return *model;
}

Usage Search::usage_at(const Spot& spot) { return finished(spot, bytes_and_seconds(spot)); }

Usage Search::finished(const Spot& spot, Usage usage) {
  add_other_needs(spot, usage);
  if (late_.empty()) return usage;
  if (const auto found = late_.find(line_of(spot)); found != late_.end()) usage.seconds *= found->second;
  return usage;
}

// Adds what is kept on disk with the variant's own bytes, and launches.
void Search::add_other_needs(const Spot& spot, Usage& usage) const {
  usage.bytes[index(Space::disk)] += request_.choices.kept_bytes;
  if (request_.target.device.launch_seconds > 0 || spot.graphs) add_launches(spot, usage);
}

// Graphs count to the device, as far as limits go.
void Search::add_launches(const Spot& spot, Usage& usage) const {
  const LaunchCost cost =
      launch_cost(usage.runs, request_.target.device, spot.graphs ? request_.choices.graphs : UseGraphs::off);
  usage.seconds += cost.seconds;
  usage.graph_bytes = cost.graph_bytes;
  if (request_.target.own_memory) {
    usage.bytes[index(Space::device)] += cost.graph_bytes;
  } else {
    usage.program_bytes += cost.graph_bytes;
  }
}

int64_t Search::arena_bytes(const Spot& spot) const {
  return spot.usage.of(Space::device) - (request_.target.own_memory ? spot.usage.graph_bytes : 0);
}

std::vector<Search::Spot> Search::choices_at(const Spot& spot) const {
  const bool makes_graphs =
      request_.target.device.backend == Backend::gpu && request_.choices.graphs != UseGraphs::off;
  std::vector<Spot> spots;
  spots.reserve(2 * frames_[spot.frame].chunks.size());
  for (size_t chunk = 0; chunk < frames_[spot.frame].chunks.size(); ++chunk) {
    Spot& choice = spots.emplace_back(spot);
    choice.chunk = chunk;
    choice.graphs = makes_graphs && request_.choices.graphs == UseGraphs::on;
    if (!makes_graphs || choice.graphs) continue;
    Spot with = choice;
    with.graphs = true;
    spots.push_back(with);
  }
  return spots;
}

void Search::offer_all(const Spot& spot, Limits& limits, const Visit& visit) {
  for (const Spot& choice : choices_at(spot)) offer(choice, limits, visit);
}

// Returns whether a few layers predict the spot's: its parts are in one place each.
bool Search::tells_by_depth(const Spot& spot) const {
  return is_deep_ && !spot.split.any() && frames_[spot.frame].whole;
}

Usage Search::bytes_and_seconds(const Spot& spot) {
  if (is_stretched(spot)) return spot.split.any() ? of_split(spot) : of_stretches(spot);
  const DepthModel& model = model_of(spot);
  if (!tells_by_depth(spot)) return model.at(spot.chunk);
  if (spot.segment > 1) return model.in_segments(depths_, spot.segment, spot.chunk);
  std::vector<StackDepth> stacks;
  for (const StackRange& stack : stack_ranges()) {
    const int64_t first = stack.first_of(spot.first_layers);
    const bool both = spot.first != spot.rest && first > 0;
    stacks.push_back({stack.depth, both ? first : stack.depth});
  }
  return model.at(stacks, spot.chunk);
}

// By the fastest rows of logits.
double Search::least_seconds_at(const Spot& spot) {
  double seconds = kOpen;
  if (!may_measure(spot)) return seconds;
  for (const Spot& choice : choices_at(spot)) seconds = std::min(seconds, usage_at(choice).seconds);
  return seconds;
}

bool Search::counts_device_alone(const Budget& budget) const {
  return request_.target.own_memory || budget.device_bytes.has_value();
}

int64_t Search::taken(const Usage& usage, const Budget& budget) const {
  if (counts_device_alone(budget)) return usage.of(Space::device);
  return process_bytes(usage) + request_.target.host.total() + files_in_memory(usage, budget);
}

int64_t Search::slack(const Spot& spot) const {
  const auto found = slack_.find(line_of(spot));
  return std::max(margin_, (is_deep_ || is_stretched(spot)) && found != slack_.end() ? found->second : 0);
}

// Bytes above the limits (at most 0: within them); time counts for more than any bytes.
double Search::overrun(const Usage& usage, int64_t slack, const Limits& limits) const {
  constexpr double kBytesPerSecond = 1e15;
  const Budget& budget = limits.budget;
  const int64_t device = usage.of(Space::device) + slack;
  const int64_t host = usage.of(Space::host) + usage.program_bytes + request_.target.host.total();
  double most = -1;
  const auto take = [&](int64_t bytes, const std::optional<int64_t>& limit) {
    if (limit) most = std::max(most, static_cast<double>(bytes - *limit));
  };
  take(device, budget.device_bytes);
  take(host, budget.host_bytes);
  take(usage.of(Space::disk), budget.disk_bytes);
  take(device + host + files_in_memory(usage, budget), budget.process_bytes);
  if (limits.seconds < kOpen && usage.seconds >= limits.seconds)
    most = std::max(most, 1 + kBytesPerSecond * (usage.seconds - limits.seconds));
  return most;
}

bool Search::is_rejected(const Spot& spot) const {
  return !rejected_.empty() && rejected_.contains({key_of(spot), spot.chunk, spot.graphs});
}

void Search::reject(const Spot& spot, const Candidate& laid_out) {
  rejected_.insert({key_of(spot), spot.chunk, spot.graphs});
  int64_t& slack = slack_[line_of(spot)];
  slack = std::max(slack, laid_out.arena_bytes - arena_bytes(spot));
}

void Search::forget_layouts() {
  rejected_.clear();
  late_.clear();
  slack_.clear();
  margin_ = 0;
}

void Search::offer(Spot spot, Limits& limits, const Visit& visit) {
  if (!may_measure(spot)) return;
  spot.usage = usage_at(spot);
  if (overrun(spot, limits) <= 0 && !is_rejected(spot)) visit(spot, limits);
}

void Search::each_of_line(Spot spot, Limits& limits, const Visit& visit) {
  if (is_deep_) {
    for (const StackRange& stack : stack_ranges()) {
      spot.first_layers = stack.begin;
      if (stack.begin > 0) offer(spot, limits, visit);
      each_of_deep_line(spot, stack, limits, visit);
    }
    return;
  }
  each_of_shallow_line(spot, limits, visit);
}

// The measured places; and between one that is too large and one that fits, which may be all layers, the
// first place that fits: it is the fastest.
void Search::each_of_shallow_line(Spot line, Limits& limits, const Visit& visit) {
  if (is_line_beyond(line, limits)) return;
  Limits of_bytes = limits;
  of_bytes.seconds = kOpen;
  const auto at = [&](int64_t place) {
    Spot spot = line;
    spot.first_layers = place % layers_;
    if (place == 0) spot.first = spot.rest;
    if (place == layers_) spot.rest = spot.first;
    return spot;
  };
  // Bounds by blocks stand for the programs of frames that move nothing else.
  const bool shares = has_shares(line);
  const bool asks_still = !limits.is_open();
  const bool bytes_are_open = limits.bytes == Limits().bytes && !limits.preferred;
  const auto exceeds_at = [&](int64_t place, const Limits& of) {
    return place > 0 && place < layers_ && exceeds_by_blocks(at(place), of);
  };
  const auto still_exceeds = [&](int64_t place, const Limits& of) {
    if (exceeds_at(place, of) || exceeds_by_sooner(at(place), of)) return true;
    return asks_still && !(shares && !moves_activations(line.frame)) && exceeds_by_still(at(place), of);
  };
  const auto fits = [&](int64_t place) {
    Spot spot = at(place);
    if (exceeds_at(place, {.budget = limits.budget})) return false;
    if (exceeds_by_sooner(spot, {.budget = limits.budget})) return false;
    if (asks_still && !(shares && bytes_are_open) && exceeds_by_still(spot, of_bytes)) return false;
    if (!may_measure(spot)) return false;
    spot.usage = usage_at(spot);
    return overrun(spot, of_bytes) <= 0;
  };
  std::vector<int64_t> places = measured_places();
  places.push_back(layers_);
  int64_t before = 0;
  bool before_fits = fits(0);
  for (const int64_t place : places) {
    // More layers that are recomputed only compute more.
    const bool is_late = asks_still && before_fits && !moves_activations(line.frame) &&
                         still_exceeds(place, Limits{.budget = {}, .seconds = limits.seconds});
    if (is_late) return;
    const bool now_fits = fits(place);
    if (now_fits && !before_fits)
      if (const int64_t first = farthest(place, before + 1, fits); first != place)
        offer(at(first), limits, visit);
    if (place < layers_ && now_fits) offer(at(place), limits, visit);  // it is measured
    before = place;
    before_fits = now_fits;
  }
}

void Search::each_of_deep_line(Spot spot, const StackRange& stack, Limits& limits, const Visit& visit) {
  const int64_t begin = stack.begin + 1, end = stack.begin + stack.depth - 1;
  spot.first_layers = begin;
  if (!may_measure(spot)) return;
  const auto at = [&](int64_t first_layers) {
    spot.first_layers = first_layers;
    spot.usage = usage_at(spot);
    return spot;
  };
  const auto over = [&](int64_t k) { return overrun(at(k), limits); };
  const int64_t best = least_place(begin, end, over);
  if (over(best) > 0) return;
  const auto holds = [&](int64_t k) { return over(k) <= 0; };
  const int64_t low = farthest(best, begin, holds);
  const int64_t high = farthest(best, end, holds);
  const auto device = [&](int64_t k) { return at(k).usage.of(Space::device); };
  const auto process = [&](int64_t k) { return process_bytes(at(k).usage); };
  const auto seconds = [&](int64_t k) { return at(k).usage.seconds; };
  const std::set<int64_t> places = {low, high, least_place(low, high, device),
                                    least_place(low, high, process), least_place(low, high, seconds)};
  for (const int64_t place : places) offer(at(place), limits, visit);
}

// Recomputation adds to what computing takes; where activations move away, it also leaves less to be
// moved, and all else takes what it would without.
bool Search::is_too_slow(size_t frame, RecomputePoint point, const Limits& limits) {
  if (limits.is_open()) return false;
  Least least;
  const OffloadChoice& choice = frames_[frame].variant.offload;
  add_parts(frames_[frame].capacity, choice, base_of(frames_[frame].capacity, choice, false, point), least);
  return least.seconds >= limits.seconds;
}

// By what a frame takes when it keeps everything and leaves activations on the device. What moves comes back
// in copies: how many of them are there at a time, and how many ops move them, falls with what is made again,
// so that a frame whose activations move says nothing of its other choices.
std::optional<DepthModel::Floor> Search::floor_of(size_t frame) {
  if (!frames_[frame].whole) {
    const Least least = least_of(frames_[frame].capacity, frames_[frame].variant.offload);
    return DepthModel::Floor{least.device, least.host + least.programs};
  }
  const bool moves = moves_activations(frame);
  const size_t twin = frames_[frame].twin;
  const std::optional<size_t> of = moves ? frames_[twin].on_device : twin;
  Spot spot{.frame = of.value_or(frame), .first = points_.front(), .rest = points_.front()};
  spot.chunk = frames_[spot.frame].chunks.size() - 1;
  // A frame that was not measured says nothing of larger capacities.
  if (!of || !may_measure(spot)) return std::nullopt;
  const DepthModel& plain = model_of(spot);
  const DepthModel::Floor floor = !is_deep_ ? plain.floor()
                                  : moves   ? plain.floor_of_ops(depths_)
                                            : plain.floor(depths_, spot.chunk);
  const Usage usage = bytes_and_seconds(spot);
  Least least;
  const OffloadChoice& choice = frames_[frame].variant.offload;
  add_parts(frames_[frame].capacity, choice, base_of(frames_[frame].capacity, choice, false, points_.front()),
            least);
  return DepthModel::Floor{least.device + floor.device - usage.persistent[index(Space::device)],
                           least.host + least.programs};
}

bool Search::exceeds(const DepthModel::Floor& least, const Limits& limits) const {
  return exceeds(Least{.device = least.device, .programs = least.host}, limits);
}

// Finds which capacity is no smaller than which other one.
void Search::find_capacities_without_less() {
  const Experiment& experiment = request_.workload.experiment;
  std::vector<int64_t> tokens;
  for (const Capacity& capacity : capacities_)
    tokens.push_back(experiment.batch_shape(experiment.train_capacity(capacity.plain), 1).tokens);
  known_.by_size.resize(capacities_.size());
  std::iota(known_.by_size.rbegin(), known_.by_size.rend(), size_t{0});
  std::ranges::stable_sort(known_.by_size, {}, [&](size_t capacity) { return tokens[capacity]; });
  known_.no_less_capacity.assign(capacities_.size(), std::vector<char>(capacities_.size()));
  for (size_t a = 0; a < capacities_.size(); ++a)
    for (size_t b = 0; b < capacities_.size(); ++b) {
      const Variant &larger = capacities_[a].plain, &other = capacities_[b].plain;
      known_.no_less_capacity[a][b] = (larger.accumulation == 1) == (other.accumulation == 1) &&
                                              larger.micro_batch >= other.micro_batch &&
                                              tokens[a] >= tokens[b]
                                          ? 1
                                          : 0;
    }
}

bool Search::takes_no_less_than_before(size_t place) const {
  const auto& no_less = known_.no_less_capacity[known_.by_size[place]];
  return std::any_of(known_.by_size.begin(), known_.by_size.begin() + static_cast<std::ptrdiff_t>(place),
                     [&](size_t smaller) { return no_less[smaller] != 0; });
}

bool Search::has_no_less_capacity(size_t larger, size_t frame) const {
  return frames_[larger].variant.update_in_backward == frames_[frame].variant.update_in_backward &&
         known_.no_less_capacity[frames_[larger].capacity][frames_[frame].capacity] != 0;
}

// Returns whether both are cut alike but for the capacity of a micro-step, which is no smaller in `larger`.
bool Search::takes_no_less(size_t larger, size_t frame) const {
  return frames_[larger].variant.offload == frames_[frame].variant.offload &&
         has_no_less_capacity(larger, frame);
}

// A part that leaves the device is there in copies of a block at a time, wherever it goes; what stays is there
// whole. Copies for the next layer are less than the whole of two layers and more; those of a layer more are
// compared with as many. Gradients that micro-steps add to are there of three layers, the one that is stored among them,
// with squares of all that moves.
bool Search::takes_no_less_on_device(size_t larger, size_t frame) const {
  const OffloadChoice &keeps = frames_[larger].variant.offload, &moves = frames_[frame].variant.offload;
  const bool no_more_copies = moves.prefetch <= (keeps.any() ? keeps.prefetch : 1);
  constexpr int64_t kCopiesOfGradients = 3;
  const bool frees_gradients =
      !moves.gradients.any() || keeps.gradients.any() || std::ranges::min(depths_) > kCopiesOfGradients;
  return layers_ > 1 && no_more_copies && frees_gradients && frames_[larger].whole && frames_[frame].whole &&
         moves_all_of(moves, keeps) && has_no_less_capacity(larger, frame);
}

bool Search::Excluded::holds(const Search& search, size_t frame) const {
  return std::ranges::any_of(everywhere, [&](size_t other) { return search.takes_no_less(frame, other); }) ||
         std::ranges::any_of(on_device,
                             [&](size_t other) { return search.takes_no_less_on_device(frame, other); });
}

// By frames that are known to be too large, else by this one's own bound.
bool Search::is_excluded(size_t frame, const Limits& limits, Excluded& excluded) {
  if (excluded.holds(*this, frame)) return true;
  const auto floor = floor_of(frame);
  if (!floor || !exceeds(*floor, limits)) return false;
  excluded.everywhere.push_back(frame);
  if (exceeds(DepthModel::Floor{floor->device, 0}, limits)) excluded.on_device.push_back(frame);
  return true;
}

bool Search::moves_most(const Frame& frame) const {
  return std::ranges::all_of(frames_, [&](const Frame& other) {
    return !other.offered || (moves_all_of(frame.variant.offload, other.variant.offload) &&
                              frame.variant.offload.prefetch <= other.variant.offload.prefetch);
  });
}

// Begins with a frame that moves most, of small capacities first: where those are too large, nearly all are.
Search::Excluded Search::excluded_from_the_start(const Limits& limits) {
  Excluded excluded;
  if (!known_.most_moving) {
    known_.most_moving.emplace();
    const Capacity& capacity = capacities_.front();
    for (size_t frame = capacity.begin; frame < capacity.end && known_.most_moving->empty(); ++frame)
      if (frames_[frame].offered && moves_most(frames_[frame]))
        known_.most_moving->push_back(frame - capacity.begin);
  }
  for (size_t capacity = capacities_.size(); capacity-- > 0;)
    for (const size_t place : *known_.most_moving)
      if (may_be_among(capacities_[capacity].begin + place, limits))
        is_excluded(capacities_[capacity].begin + place, limits, excluded);
  return excluded;
}

void Search::each_of_segments(size_t frame, Limits& limits, const Visit& visit) {
  for (const int64_t segment : segment_sizes()) {
    const Spot spot{
        .frame = frame, .first = RecomputePoint::block, .rest = RecomputePoint::block, .segment = segment};
    for (const Spot& choice : choices_at(spot))
      if (may_be_at(choice, limits)) offer(choice, limits, visit);
  }
}

void Search::each_of_frame(size_t frame, Limits& limits, const Visit& visit) {
  // A search for the least begins with what takes least: that leaves little of the rest.
  const bool segments_first = limits.smallest_first && limits.is_open();
  if (segments_first) each_of_segments(frame, limits, visit);
  const std::vector<Spot> levels = levels_of_frame(frame);
  for (size_t i = 0; i < levels.size(); ++i) {
    Spot spot = levels[i];
    // Asked where it decides: it measures the frame of one layer ahead.
    std::optional<bool> known;
    const auto gains = [&] { return known ? *known : *(known = gains_by_prefetch(spot)); };
    for (const Spot& choice : choices_at(spot))
      if (may_be_by_sums(choice, limits) && gains() && may_be_at(choice, limits))
        offer(choice, limits, visit);
    if (is_too_slow(frame, spot.rest, limits)) return;
    if (i + 1 == points_.size()) break;
    if (layers_ == 1) continue;
    Spot beyond = spot;
    beyond.first = points_[i + 1];
    for (const Spot& line : choices_at(beyond)) {
      Spot less = line, more = line;
      less.first = less.rest;
      more.rest = more.first;
      if (may_be_between(less, more, limits) && gains()) each_of_line(line, limits, visit);
    }
  }
  if (!segments_first) each_of_segments(frame, limits, visit);
}

// By what is known of a frame without measuring it.
bool Search::may_be_among(size_t frame, const Limits& limits) const {
  const OffloadChoice& choice = frames_[frame].variant.offload;
  return frames_[frame].at_least < limits.seconds && !(limits.on_device && choice.any()) &&
         (!limits.moves_no_more_than || moves_no_more(choice, *limits.moves_no_more_than));
}

// A search for the least memory: a frame that starts transfers ahead takes no less, and one with other places takes
// as much of the device as what was looked at, where host and disk had room for that at any spot.
bool Search::is_covered(size_t frame, const Limits& limits) {
  if (!limits.smallest_first || limits.of_ties || !limits.is_open()) return false;
  const OffloadChoice& choice = frames_[frame].variant.offload;
  if (choice.any() && choice.prefetch > 0 && !request_.choices.prefetch) return true;
  if (known_.done.contains(frames_[frame].twin)) return true;
  const Least least = least_at({.frame = frame, .first = points_.front(), .rest = points_.front()});
  if (frames_[frame].whole && fits_easily(least, limits)) known_.done.insert(frames_[frame].twin);
  return false;
}

// With a tenth to spare on host and disk, and programs that have several times as many ops.
bool Search::fits_easily(const Least& least, const Limits& limits) const {
  constexpr int64_t kSpare = 10, kMoreOps = 3;
  const int64_t host = least.host + kMoreOps * least.programs + request_.target.host.total();
  const int64_t disk = least.disk + request_.choices.kept_bytes;
  return keeps(host + host / kSpare, limits.budget.host_bytes) &&
         keeps(disk + disk / kSpare, limits.budget.disk_bytes) && !limits.budget.process_bytes;
}

void Search::each_of_entry(const Entry& entry, Excluded& excluded, Limits& limits, const Visit& visit) {
  if (exceeds(entry.least, limits)) return;
  if (entry.split.any()) {
    // A frame that starts transfers ahead takes no less memory.
    const bool ahead = frames_[entry.frame].variant.offload.prefetch > 0 && !request_.choices.prefetch;
    const bool takes_no_less = ahead && limits.smallest_first && !limits.of_ties && limits.is_open();
    if (!limits.on_device && !takes_no_less) each_of_split(entry.frame, entry.split, limits, visit);
    return;
  }
  if (is_covered(entry.frame, limits)) return;
  if (may_be_among(entry.frame, limits) && !is_excluded(entry.frame, limits, excluded) &&
      !is_too_slow(entry.frame, points_.front(), limits))
    each_of_frame(entry.frame, limits, visit);
}

void Search::each(Limits limits, const Visit& visit) {
  // Limits never widen: what is too large stays so.
  Excluded excluded = excluded_from_the_start(limits);
  known_.done.clear();
  for (size_t i = 0; i < capacities_.size(); ++i) {
    const size_t capacity = limits.smallest_first ? known_.by_size[i] : i;
    const bool can_tie_at_best = limits.has_least && limits.is_open() && takes_no_less_than_before(i);
    if (capacities_[capacity].at_least < limits.seconds && !can_tie_at_best)
      for (const Entry& entry : entries_of(capacity, limits)) each_of_entry(entry, excluded, limits, visit);
    if (request_.progress) request_.progress(i + 1, capacities_.size());
  }
}

std::optional<Search::Spot> Search::fastest_spot(Limits limits) {
  std::optional<Spot> best;
  const double worth = is_deep_ ? 1 - kWorthOfTie * request_.choices.tie : 1;
  const Visit visit = [&](const Spot& spot, Limits& left) {
    if (!best || spot.usage.seconds < best->usage.seconds) best = spot;
    left.seconds = worth * best->usage.seconds;
  };
  // Variants that fit as they are come first: it is known soon, and leaves little of the rest to be looked at.
  for (size_t capacity = 0; capacity < capacities_.size(); ++capacity) {
    if (capacities_[capacity].at_least >= limits.seconds) continue;
    for (const Entry& entry : entries_of(capacity, limits)) {
      if (entry.split.any() || exceeds(entry.least, limits)) continue;
      for (const Spot& choice : choices_at(levels_of_frame(entry.frame).front()))
        if (may_be_at(choice, limits)) offer(choice, limits, visit);
    }
  }
  each(limits, visit);
  return best;
}

Search::Spot Search::preferred(const Spot& fastest, Limits limits) {
  Spot best = fastest;
  // Sums of the same seconds in another order differ in their last digits.
  const double tie = is_deep_ ? (1 - kLeftOfTie) * request_.choices.tie : request_.choices.tie;
  limits.seconds = best.usage.seconds * (1 + std::max(tie, kSameSeconds));
  limits.preferred = {best.usage.disk_traffic, best.usage.of(Space::host)};
  limits.smallest_first = limits.of_ties = true;
  each(limits, [&](const Spot& spot, Limits& left) {
    // The earlier frame, which moves fewer parts, wins among equals.
    const bool equal = !is_preferred(best.usage, spot.usage);
    if (is_preferred(spot.usage, best.usage) || (equal && spot.frame < best.frame)) best = spot;
    // More memory in all may still be less of the disk or the host.
    left.preferred = {best.usage.disk_traffic, best.usage.of(Space::host)};
    if (best.usage.disk_traffic == 0 && best.usage.of(Space::host) == 0)
      left.bytes = process_bytes(best.usage) + 1;
  });
  return best;
}

// Records a layout that takes longer than was estimated: others of its line will too.
void Search::is_late(const Spot& spot, const Candidate& laid_out) {
  double& late = late_.try_emplace(line_of(spot), 1.0).first->second;
  late = std::max(late, late * laid_out.seconds_per_step / spot.usage.seconds);
}

Budget Search::nearly(Budget budget) {
  for (auto* limit : {&budget.device_bytes, &budget.process_bytes})
    if (*limit) **limit += **limit / (kEstimateError - 1) + 1;
  return budget;
}

bool Search::may_fit(const Budget& budget) {
  forget_layouts();
  bool any = false;
  each({.budget = nearly(budget)}, [&](const Spot&, Limits& left) {
    any = true;
    left.seconds = 0;
  });
  return any;
}

std::optional<Candidate> Search::fastest(const Budget& budget, const LayOut& lay_out, bool on_device) {
  const double tie = 1 + std::max(request_.choices.tie, kSameSeconds);
  forget_layouts();
  int64_t laid_out_ops = 0;
  const auto laid_out = [&](const Spot& spot) {
    laid_out_ops += spot.usage.ops;
    ops_laid_out_ += kLayoutWork * spot.usage.ops;
    return lay_out(candidate(spot));
  };
  std::optional<Candidate> chosen;
  for (int last = 0, late = 0; last < kLastLayouts;) {
    // So often missed: from now on all must have room for the most that was ever missed.
    if (laid_out_ops > kMostLaidOut && last++ == 0)
      for (const auto& [line, bytes] : slack_) margin_ = std::max(margin_, bytes);
    const std::optional<Spot> fastest = fastest_spot({.budget = budget, .on_device = on_device});
    if (!fastest) break;
    const Spot best = preferred(*fastest, {.budget = budget, .on_device = on_device});
    const Candidate now = laid_out(best);
    if (!within(now, budget, request_.target.host)) {
      reject(best, now);
      continue;
    }
    if (!chosen || now.seconds_per_step < chosen->seconds_per_step) chosen = now;
    // Seconds of deep models are estimates, which are off where much moves.
    if (now.seconds_per_step <= tie * fastest->usage.seconds || late++ == kMostLate) return chosen;
    is_late(best, now);
  }
  if (chosen) return chosen;
  // A fast variant within a smaller budget is still faster than the least memory of all.
  for (const int64_t part : rejected_.empty() ? std::vector<int64_t>{} : std::vector<int64_t>{50, 20, 10}) {
    Budget less = budget;
    for (auto* limit : {&less.device_bytes, &less.process_bytes})
      if (*limit) **limit -= **limit / part;
    const std::optional<Spot> fastest = fastest_spot({.budget = less, .on_device = on_device});
    if (!fastest) break;
    const Candidate now = laid_out(*fastest);
    if (within(now, budget, request_.target.host)) return now;
    reject(*fastest, now);
  }
  // Nothing by estimates and what layouts were seen to add to them: of those that nearly fit, or missed, the
  // one of the least memory may still do.
  const Limits near{.budget = nearly(budget), .smallest_first = true, .on_device = on_device};
  const std::optional<Candidate> found = least(near, lay_out);
  return found && within(*found, budget, request_.target.host) ? found : std::nullopt;
}

}  // namespace plimsoll
