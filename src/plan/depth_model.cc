#include "plan/depth_model.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/units.h"
#include "layout/program_layout.h"
#include "ops/rule.h"
#include "passes/layers.h"

namespace plimsoll {
namespace {

constexpr int32_t kNobody = -2;  // no layer has this number, and kNoLayer is another

// The layers whose ops, tensors and seconds count for all of their kind, and those whose storages do. Layer 0
// is none of them: below it nothing trains.
struct SampleLayers {
  std::array<int32_t, kKinds> layers{kNobody, kNobody, kNobody};
  std::array<int32_t, kKinds> forward{kNobody, kNobody, kNobody};   // left by their forward pass
  std::array<int32_t, kKinds> input{kNobody, kNobody, kNobody};     // left to their backward pass
  std::array<int32_t, kKinds> repeated{kNobody, kNobody, kNobody};  // made again, for the layer after them
};

// Of a mixture: a layer in the midst of the first ones and one in the midst of the rest. Of three segments of
// three: the first, the midst and the last layer of one; the input that the middle segment keeps, and the
// inputs that wait inside of the middle and of the last segment.
SampleLayers layers_of(Samples samples) {
  switch (samples) {
    case Samples::none:
      break;
    case Samples::mixture:
      return {.layers = {1, 3, kNobody}, .forward = {1, 3, kNobody}};
    case Samples::segments:
      // The input may lie in storage that was first written layers before.
      return {.layers = {3, 4, 5}, .input = {3, kNobody, kNobody}, .repeated = {kNobody, 3, 6}};
  }
  return {};
}

// Regression over models of 1 to 80 layers, full and LoRA: what the process keeps beyond arena and data.
constexpr int64_t kHeapBase = kMiB;
constexpr int64_t kHeapPerOp = 1024;
constexpr int64_t kHeapPerTensor = 640;

size_t index(Space space) { return static_cast<size_t>(space); }

Experiment shallow(const Experiment& experiment, int64_t layers) {
  Experiment result = experiment;
  result.model.layers = layers;
  result.model.windows.resize(static_cast<size_t>(layers));
  return result;
}

// Adds an amount, for its layer where that is one of the samples.
template <class Amount>
void add(Affine<Amount>& to, Amount amount, int32_t layer, const std::array<int32_t, kKinds>& samples) {
  to.base += amount;
  for (size_t i = 0; i < kKinds; ++i)
    if (layer == samples[i]) to.slope[i] += amount;
}

template <class Amount>
void add(Affine<Amount>& to, const Affine<Amount>& amount, Amount times) {
  to.base += amount.base * times;
  for (size_t i = 0; i < kKinds; ++i) to.slope[i] += amount.slope[i] * times;
}

// What a storage's bytes count as: what the forward pass of a sample leaves to the backward pass, or an input
// of the next layer that a segment's repetition makes.
AffineBytes storage_bytes(const Graph& graph, const StorageLife& life, const SampleLayers& samples) {
  AffineBytes bytes{life.bytes, {}};
  const Op& writer = graph.ops()[static_cast<size_t>(life.first)];
  const Op& last = graph.ops()[static_cast<size_t>(life.last)];
  if (last.stage == Stage::forward) return bytes;
  const int32_t layer = layer_of(writer.scope);
  const bool forward = writer.stage == Stage::forward;
  const int32_t reader = layer_of(last.scope);
  for (size_t i = 0; i < kKinds; ++i) {
    const bool kept = forward && (layer == samples.forward[i] || reader == samples.input[i]);
    const bool waits_inside = !forward && reader > layer && layer == samples.repeated[i];
    if (kept || waits_inside) bytes.slope[i] = life.bytes;
  }
  return bytes;
}

bool is_loss(const Op& op) {
  return op.kind == OpKind::linear_cross_entropy || op.kind == OpKind::linear_cross_entropy_grad;
}

// The op with so many rows of logits at a time.
Op with_rows(Op op, int64_t chunk) {
  op.attrs["chunk"] = chunk;
  return op;
}

// What is alive op by op, as (what else is alive grows) -> the most.
class Largest {
 public:
  void take(const AffineBytes& alive) {
    int64_t& base = largest_.try_emplace(alive.slope, alive.base).first->second;
    base = std::max(base, alive.base);
  }
  [[nodiscard]] std::vector<AffineBytes> list() const {
    std::vector<AffineBytes> list;
    for (const auto& [slope, base] : largest_) list.push_back({base, slope});
    return list;
  }

 private:
  std::map<std::array<int64_t, kKinds>, int64_t> largest_;
};

// For each op, what is alive and how much of it belongs to each sample; ops of a mixture's samples themselves
// are left out, since the layer after them has the same and more.
void add_lives(const Graph& graph, const SampleLayers& samples, const std::vector<std::vector<int64_t>>& rows,
               ProgramNeeds& needs) {
  const size_t n = graph.ops().size();
  std::array<std::vector<AffineBytes>, 3> change;
  for (auto& of_space : change) of_space.resize(n + 1);
  for (const StorageLife& life : storage_lives(graph)) {
    const AffineBytes bytes = storage_bytes(graph, life, samples);
    add(change[index(life.space)][static_cast<size_t>(life.first)], bytes, int64_t{1});
    add(change[index(life.space)][static_cast<size_t>(life.last) + 1], bytes, int64_t{-1});
  }
  for (size_t space = 0; space < change.size(); ++space) {
    AffineBytes alive;
    Largest largest;
    for (size_t i = 0; i < n; ++i) {
      add(alive, change[space][i], int64_t{1});
      const Op& op = graph.ops()[i];
      const int32_t layer = layer_of(op.scope);
      if (samples.forward[0] == samples.layers[0] &&
          (layer == samples.layers[0] || layer == samples.layers[1]))
        continue;
      if (space != index(Space::device) || !is_loss(op)) {
        largest.take(alive);
        continue;
      }
      AffineBytes without = alive;
      if (op.scratch != kNoTensor)
        without.base -= round_up(graph.tensor(op.scratch).bytes(), kArenaAlignment);
      needs.losses.push_back({without, rows[i]});
    }
    needs.transient[space] = largest.list();
  }
}

// Seconds of a program for one number of rows at a time.
struct OpSeconds {
  std::vector<double> seconds;     // by op, on its queue
  std::vector<double> contention;  // by op: of transfers, what they take from the compute queue
};

void add_seconds(const Graph& graph, const SampleLayers& samples, const OpSeconds& times,
                 ProgramNeeds& needs) {
  AffineSeconds compute, together, io;
  Queues queues;
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    const int32_t layer = layer_of(op.scope);
    const double before = queues.compute;
    queues.take(op, times.seconds[i], times.contention[i]);
    add(together, queues.compute - before, layer, samples.layers);
    const bool transfers = rule_of(op.kind).io;
    add(transfers ? io : compute, times.seconds[i], layer, samples.layers);
    add(compute, times.contention[i], layer, samples.layers);
  }
  together.base = queues.end();
  needs.io = io;
  needs.compute.push_back(compute);
  needs.together.push_back(together);
}

}  // namespace

int64_t program_heap_bytes(int64_t ops, int64_t tensors) {
  return kHeapBase + ops * kHeapPerOp + tensors * kHeapPerTensor;
}

ProgramNeeds KnownPrograms::needs_of(const Graph& graph, const Variant& variant, Samples kind,
                                     const std::vector<int64_t>& chunks) {
  const SampleLayers samples = layers_of(kind);
  ProgramNeeds needs;
  needs.runs = runs_per_step(graph, variant);
  ops_built_ += static_cast<int64_t>(graph.ops().size());
  for (const Tensor& tensor : graph.tensors()) {
    const int32_t layer = layer_of(tensor.name);
    add(needs.tensors, int64_t{1}, layer, samples.layers);
    if (!is_persistent(tensor.role)) continue;
    ProgramNeeds::Persistent& persistent = needs.persistent[tensor.name];
    persistent.space = tensor.space;
    add(persistent.bytes, round_up(tensor.bytes(), kArenaAlignment), layer, samples.layers);
  }
  OpSeconds times;
  std::vector<std::vector<int64_t>> rows(graph.ops().size());  // of losses: workspaces by chunk
  std::vector<size_t> losses;
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    const int32_t layer = layer_of(op.scope);
    add(needs.ops, int64_t{1}, layer, samples.layers);
    add(needs.disk_traffic, disk_bytes_of(graph, op), layer, samples.layers);
    // Workspaces have no layer in their names.
    if (op.scratch != kNoTensor)
      for (size_t k = 0; k < kKinds; ++k) needs.tensors.slope[k] += layer == samples.layers[k] ? 1 : 0;
    times.seconds.push_back(time_.seconds_of(graph, op));
    times.contention.push_back(rule_of(op.kind).io ? contention_seconds(graph, op, device_.rates) : 0.0);
    if (!is_loss(op)) continue;
    losses.push_back(i);
    for (const int64_t chunk : chunks)
      rows[i].push_back(round_up(scratch_bytes_of(graph, with_rows(op, chunk), device_), kArenaAlignment));
  }
  add_lives(graph, samples, rows, needs);
  for (const int64_t chunk : chunks) {
    for (const size_t i : losses)
      times.seconds[i] = time_.seconds_of(graph, with_rows(graph.ops()[i], chunk));
    add_seconds(graph, samples, times, needs);
    if (losses.empty()) break;  // alike for all
  }
  needs.compute.resize(chunks.size(), needs.compute.front());
  needs.together.resize(chunks.size(), needs.together.front());
  return needs;
}

std::shared_ptr<const ProgramNeeds> KnownPrograms::update_of(const Experiment& experiment,
                                                             const Variant& variant, Samples samples,
                                                             const std::vector<int64_t>& chunks) {
  const OffloadChoice& o = variant.offload;
  const Key key = {experiment.model.layers,
                   static_cast<int64_t>(samples),
                   static_cast<int64_t>(chunks.size()),
                   static_cast<int64_t>(o.states),
                   static_cast<int64_t>(o.gradients),
                   static_cast<int64_t>(o.weights),
                   o.prefetch,
                   o.slice_elements,
                   o.smallest_bytes};
  std::shared_ptr<const ProgramNeeds>& update = updates_[key];
  if (update == nullptr) {
    Variant plain = variant;
    plain.recompute = {};
    const Graph& train = trains_.keeping(experiment, plain, experiment.model.layers);
    update = std::make_shared<ProgramNeeds>(
        needs_of(finish_programs(experiment, plain, device_, train, Programs::update).front(), variant,
                 samples, chunks));
  }
  return update;
}

std::shared_ptr<const ProgramNeeds> KnownPrograms::evaluation_of(const Experiment& experiment,
                                                                 const Variant& variant, Samples samples,
                                                                 const std::vector<int64_t>& chunks) {
  const OffloadChoice& o = variant.offload;
  Key key = chunks;
  for (const int64_t part : {experiment.model.layers, static_cast<int64_t>(samples), variant.eval_micro_batch,
                             static_cast<int64_t>(o.weights), o.prefetch, o.smallest_bytes})
    key.push_back(part);
  std::shared_ptr<const ProgramNeeds>& evaluation = evaluations_[key];
  if (evaluation == nullptr)
    evaluation = std::make_shared<ProgramNeeds>(
        needs_of(finish_programs(experiment, variant, device_, Graph(), Programs::evaluation).front(),
                 variant, samples, chunks));
  return evaluation;
}

KnownPrograms::Needs KnownPrograms::of(const Variant& variant, int64_t layers, Samples samples,
                                       const std::vector<int64_t>& chunks) {
  const Experiment experiment = shallow(experiment_, layers);
  const Graph& train = trains_.of(experiment, variant, layers);
  Needs needs = {std::make_shared<ProgramNeeds>(
      needs_of(finish_programs(experiment, variant, device_, train, Programs::micro_step).front(), variant,
               samples, chunks))};
  if (experiment.evaluates) needs.push_back(evaluation_of(experiment, variant, samples, chunks));
  if (!variant.update_in_backward) needs.push_back(update_of(experiment, variant, samples, chunks));
  return needs;
}

DepthModel::DepthModel(const KnownPrograms::Needs& needs, size_t chunks) : loss_transient_(chunks) {
  std::set<std::string_view> known;
  std::array<Largest, 3> largest;
  std::vector<Largest> of_loss(chunks);
  for (const auto& program : needs) {
    for (const auto& [name, tensor] : program->persistent)
      if (known.insert(name).second) add(persistent_[index(tensor.space)], tensor.bytes, int64_t{1});
    for (size_t space = 0; space < largest.size(); ++space)
      for (const AffineBytes& alive : program->transient[space]) largest[space].take(alive);
    for (const ProgramNeeds::Loss& loss : program->losses)
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        of_loss[chunk].take({loss.alive.base + loss.workspace[chunk], loss.alive.slope});
    add(ops_, program->ops, int64_t{1});
    add(tensors_, program->tensors, int64_t{1});
    if (program->runs == 0) continue;
    add(disk_traffic_, program->disk_traffic, program->runs);
    timed_.push_back({static_cast<double>(program->runs), program->compute, program->together, program->io});
  }
  for (size_t space = 0; space < largest.size(); ++space) transient_[space] = largest[space].list();
  for (size_t chunk = 0; chunk < chunks; ++chunk) loss_transient_[chunk] = of_loss[chunk].list();
}

DepthModel DepthModel::exact(KnownPrograms& programs, const Variant& variant,
                             const std::vector<int64_t>& chunks) {
  return {programs.of(variant, programs.layers(), Samples::none, chunks), chunks.size()};
}

DepthModel DepthModel::mixture(KnownPrograms& programs, Variant variant, const std::vector<int64_t>& chunks,
                               RecomputePoint first, RecomputePoint rest) {
  variant.recompute = {std::vector<RecomputePoint>(kFirst + kRest, rest), 1};
  std::fill_n(variant.recompute.layers.begin(), kFirst, first);
  return {programs.of(variant, kFirst + kRest, Samples::mixture, chunks), chunks.size()};
}

DepthModel DepthModel::segments(KnownPrograms& programs, Variant variant,
                                const std::vector<int64_t>& chunks) {
  constexpr int64_t kLayers = kSegments * kSegment;
  variant.recompute = {std::vector<RecomputePoint>(kLayers, RecomputePoint::block), kSegment};
  return {programs.of(variant, kLayers, Samples::segments, chunks), chunks.size()};
}

Usage DepthModel::usage(const More& layers, const More& alive, size_t chunk) const {
  Usage usage;
  const auto largest = [&](const std::vector<AffineBytes>& list) {
    int64_t bytes = 0;
    for (const AffineBytes& at : list) bytes = std::max(bytes, at.at(alive));
    return bytes;
  };
  for (size_t space = 0; space < usage.bytes.size(); ++space) {
    int64_t transient = largest(transient_[space]);
    if (space == index(Space::device)) transient = std::max(transient, largest(loss_transient_[chunk]));
    usage.bytes[space] = persistent_[space].at(layers) + transient;
  }
  usage.ops = ops_.at(layers);
  usage.program_bytes = program_heap_bytes(usage.ops, tensors_.at(layers));
  usage.disk_traffic = disk_traffic_.at(layers);
  for (const Timed& program : timed_)
    usage.seconds += program.count * std::max({program.together[chunk].at(layers),
                                               program.compute[chunk].at(layers), program.io.at(layers)});
  return usage;
}

Usage DepthModel::at(int64_t layers, int64_t first_layers, size_t chunk) const {
  // All at one point: both halves of what was measured are of the first kind.
  const More more = first_layers == layers ? More{layers - kFirst - kRest, 0, 0}
                                           : More{first_layers - kFirst, layers - first_layers - kRest, 0};
  return usage(more, more, chunk);
}

Usage DepthModel::in_segments(int64_t layers, int64_t segment, size_t chunk) const {
  const int64_t segments = ceil_div(layers, segment);
  const int64_t last = layers - (segments - 1) * segment;
  constexpr int64_t kMidst = kSegments * (kSegment - 2);
  return usage({segments - kSegments, layers - 2 * segments - kMidst, segments - kSegments},
               {segments - kSegments, segment - kSegment, last - kSegment}, chunk);
}

int64_t DepthModel::floor_bytes(int64_t layers, size_t chunk) const {
  const More more = {layers - kFirst - kRest, 0, 0};
  const auto least = [&](const std::vector<AffineBytes>& list) {
    int64_t bytes = 0;
    for (const AffineBytes& at : list)
      bytes = std::max(bytes, at.base - (kFirst + kRest) * std::max(at.slope[0], at.slope[1]));
    return bytes;
  };
  const auto device = index(Space::device);
  return persistent_[device].at(more) + std::max(least(transient_[device]), least(loss_transient_[chunk]));
}

Usage estimate(KnownPrograms& programs, const Variant& variant) {
  const int64_t layers = programs.layers();
  std::vector<RecomputePoint> points = variant.recompute.layers;
  points.resize(static_cast<size_t>(layers), RecomputePoint::none);
  const auto change = std::adjacent_find(points.begin(), points.end(), std::not_equal_to<>());
  const int64_t first_layers = change == points.end() ? layers : change - points.begin() + 1;
  const bool two_kinds = change == points.end() ||
                         std::adjacent_find(change + 1, points.end(), std::not_equal_to<>()) == points.end();
  if (layers < DepthModel::kFewest || !two_kinds) return measure(programs, variant);
  const std::vector<int64_t> chunks = {variant.loss_chunk};
  if (variant.recompute.segment > 1)
    return DepthModel::segments(programs, variant, chunks).in_segments(layers, variant.recompute.segment, 0);
  return DepthModel::mixture(programs, variant, chunks, points.front(), points.back())
      .at(layers, first_layers, 0);
}

Usage measure(KnownPrograms& programs, const Variant& variant) {
  return DepthModel::exact(programs, variant, {variant.loss_chunk}).at(0);
}

}  // namespace plimsoll
