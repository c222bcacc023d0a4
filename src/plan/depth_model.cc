#include "plan/depth_model.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/units.h"
#include "layout/program_layout.h"
#include "ops/rule.h"
#include "passes/layers.h"
#include "plan/time_model.h"

namespace plimsoll {
namespace {

// The layers that stand for all of their kind. Layer 0 is not one of them: below it nothing trains.
constexpr int32_t kFirstSample = 1;
constexpr int32_t kRestSample = 3;

// Regression over models of 1 to 80 layers, full and LoRA: what the process keeps beyond arena and data.
constexpr int64_t kHeapBase = kMiB;
constexpr int64_t kHeapPerOp = 1024;
constexpr int64_t kHeapPerTensor = 640;

size_t index(Space space) { return static_cast<size_t>(space); }

// How often a step runs a program.
double step_count(const std::string& program, const Variant& variant) {
  if (program == kTrainProgram) return static_cast<double>(variant.accumulation);
  return program == kUpdateProgram ? 1.0 : 0.0;
}

// Which sample's bytes a storage counts for: what a forward op of the layer wrote and the backward pass still
// finds.
int32_t sample_of(const Graph& graph, const StorageLife& life) {
  const Op& writer = graph.ops()[static_cast<size_t>(life.first)];
  const Op& last = graph.ops()[static_cast<size_t>(life.last)];
  if (writer.stage != Stage::forward || last.stage == Stage::forward) return kNoLayer;
  const int32_t layer = layer_of(writer.scope);
  return layer == kFirstSample || layer == kRestSample ? layer : kNoLayer;
}

Experiment shallow(const Experiment& experiment, int64_t layers) {
  Experiment result = experiment;
  result.model.layers = layers;
  result.model.windows.resize(static_cast<size_t>(layers));
  return result;
}

int64_t value(const AffineBytes& a, int64_t more_first, int64_t more_rest) {
  return a.base + a.first * more_first + a.rest * more_rest;
}
double value(const AffineSeconds& a, int64_t more_first, int64_t more_rest) {
  return a.base + a.first * static_cast<double>(more_first) + a.rest * static_cast<double>(more_rest);
}

// Adds an amount, for its layer where that is one of the samples.
template <class Affine, class Amount>
void add(Affine& to, Amount amount, int32_t layer) {
  to.base += amount;
  to.first += layer == kFirstSample ? amount : Amount{};
  to.rest += layer == kRestSample ? amount : Amount{};
}

// For each op, what is alive and how much of it belongs to each sample; ops of the samples themselves are
// left out, since the layer after them has the same and more.
void add_lives(const Graph& graph, ProgramNeeds& needs) {
  const size_t n = graph.ops().size();
  std::array<std::vector<AffineBytes>, 3> change;
  for (auto& of_space : change) of_space.resize(n + 1);
  for (const StorageLife& life : storage_lives(graph)) {
    const int32_t sample = sample_of(graph, life);
    add(change[index(life.space)][static_cast<size_t>(life.first)], life.bytes, sample);
    add(change[index(life.space)][static_cast<size_t>(life.last) + 1], -life.bytes, sample);
  }
  for (size_t space = 0; space < change.size(); ++space) {
    AffineBytes alive;
    std::map<std::pair<int64_t, int64_t>, int64_t> largest;  // base by first and rest
    for (size_t i = 0; i < n; ++i) {
      const AffineBytes& step = change[space][i];
      alive = {alive.base + step.base, alive.first + step.first, alive.rest + step.rest};
      const int32_t layer = layer_of(graph.ops()[i].scope);
      needs.peak[space] = std::max(needs.peak[space], alive.base);
      if (layer == kFirstSample || layer == kRestSample) continue;
      int64_t& base = largest.try_emplace({alive.first, alive.rest}, alive.base).first->second;
      base = std::max(base, alive.base);
    }
    for (const auto& [slopes, base] : largest)
      needs.transient[space].push_back({base, slopes.first, slopes.second});
  }
}

using Needs = std::vector<std::shared_ptr<const ProgramNeeds>>;

// What lives between programs, and what the programs themselves take.
Usage lasting(const Needs& programs, int64_t more_first, int64_t more_rest) {
  Usage usage;
  std::set<std::string_view> known;
  int64_t ops = 0;
  int64_t tensors = 0;
  for (const auto& program : programs) {
    for (const auto& [name, tensor] : program->persistent)
      if (known.insert(name).second)
        usage.bytes[index(tensor.space)] += value(tensor.bytes, more_first, more_rest);
    ops += value(program->ops, more_first, more_rest);
    tensors += value(program->tensors, more_first, more_rest);
  }
  usage.program_bytes = program_heap_bytes(ops, tensors);
  return usage;
}

}  // namespace

int64_t program_heap_bytes(int64_t ops, int64_t tensors) {
  return kHeapBase + ops * kHeapPerOp + tensors * kHeapPerTensor;
}

ProgramNeeds needs_of(const Graph& graph, const DeviceRates& rates) {
  ProgramNeeds needs;
  needs.name = graph.name();
  for (const Tensor& tensor : graph.tensors()) {
    const int32_t layer = layer_of(tensor.name);
    add(needs.tensors, int64_t{1}, layer);
    if (!is_persistent(tensor.role)) continue;
    ProgramNeeds::Persistent& persistent = needs.persistent[tensor.name];
    persistent.space = tensor.space;
    add(persistent.bytes, round_up(tensor.bytes(), kArenaAlignment), layer);
  }
  TimeModel time(rates);
  for (const Op& op : graph.ops()) {
    const int32_t layer = layer_of(op.scope);
    add(needs.ops, int64_t{1}, layer);
    if (op.scratch != kNoTensor && layer != kNoLayer) {
      needs.tensors.first += layer == kFirstSample;
      needs.tensors.rest += layer == kRestSample;
    }
    const bool io = rule_of(op.kind).io;
    add(io ? needs.io : needs.compute, time.seconds_of(graph, op), layer);
    if (io) add(needs.compute, contention_seconds(graph, op, rates), layer);
  }
  needs.seconds = time.program_seconds(graph);
  add_lives(graph, needs);
  return needs;
}

std::vector<std::shared_ptr<const ProgramNeeds>> KnownPrograms::of(const Variant& variant, int64_t layers) {
  const Experiment experiment = shallow(experiment_, layers);
  std::vector<std::shared_ptr<const ProgramNeeds>> needs;
  const auto add_all = [&](const std::vector<Graph>& programs) {
    for (const Graph& program : programs)
      needs.push_back(std::make_shared<ProgramNeeds>(needs_of(program, device_.rates)));
  };
  const Graph& train = trains_.of(experiment, variant, layers);
  add_all(finish_programs(experiment, variant, device_, train, Programs::without_update));
  if (variant.update_in_backward) return needs;
  const OffloadChoice& o = variant.offload;
  const std::vector<int64_t> key = {layers,
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
    update = std::make_shared<ProgramNeeds>(
        needs_of(build_programs(experiment, plain, device_, Programs::update).front(), device_.rates));
  }
  needs.push_back(update);
  return needs;
}

DepthModel::DepthModel(KnownPrograms& programs, const Variant& variant, RecomputePoint first,
                       RecomputePoint rest)
    : variant_(variant) {
  variant_.recompute = {{first, first, first, rest, rest, rest}, 1};
  programs_ = programs.of(variant_, kLayers);
}

Usage DepthModel::at(int64_t first_layers, int64_t rest_layers) const {
  const bool pure = rest_layers == 0;
  const int64_t more_first = pure ? first_layers - kLayers : first_layers - kFirst;
  const int64_t more_rest = pure ? 0 : rest_layers - (kLayers - kFirst);
  check_internal(more_first >= 0 && more_rest >= 0, "DepthModel: fewer layers than were measured");
  Usage usage = lasting(programs_, more_first, more_rest);
  for (size_t space = 0; space < usage.bytes.size(); ++space) {
    int64_t largest = 0;
    for (const auto& program : programs_)
      for (const AffineBytes& alive : program->transient[space])
        largest = std::max(largest, value(alive, more_first, more_rest));
    usage.bytes[space] += largest;
  }
  for (const auto& program : programs_)
    usage.seconds +=
        step_count(program->name, variant_) *
        std::max(value(program->compute, more_first, more_rest), value(program->io, more_first, more_rest));
  return usage;
}

Usage DepthModel::below_segments(int64_t layers, int64_t segment, int64_t input_bytes) const {
  const int64_t dropped = layers - ceil_div(layers, segment);
  // Ahead of need and behind, each beside the one in use.
  const bool moves = variant_.offload.activations != Space::device;
  const int64_t copies = moves ? 2 * (variant_.offload.prefetch + 1) * input_bytes : 0;
  Usage usage = lasting(programs_, layers - kLayers, 0);
  for (size_t space = 0; space < usage.bytes.size(); ++space) {
    int64_t largest = 0;
    for (const auto& program : programs_)
      for (const AffineBytes& alive : program->transient[space])
        largest = std::max(largest, value(alive, layers - kLayers, 0) - alive.first * dropped - copies);
    usage.bytes[space] += largest;
  }
  usage.seconds = at(layers, 0).seconds;
  return usage;
}

Usage estimate(KnownPrograms& programs, const Variant& variant) {
  const int64_t layers = programs.layers();
  std::vector<RecomputePoint> points = variant.recompute.layers;
  points.resize(static_cast<size_t>(layers), RecomputePoint::none);
  const auto change = std::adjacent_find(points.begin(), points.end(), std::not_equal_to<>());
  const int64_t rest_layers = change == points.end() ? 0 : points.end() - change - 1;
  const bool two_kinds =
      rest_layers == 0 || std::adjacent_find(change + 1, points.end(), std::not_equal_to<>()) == points.end();
  const bool repeats = variant.recompute.segment == 1 && two_kinds && layers >= DepthModel::kFewest &&
                       layers - rest_layers >= DepthModel::kFirst &&
                       (rest_layers == 0 || rest_layers >= DepthModel::kLayers - DepthModel::kFirst);
  if (!repeats) return measure(programs, variant);
  return DepthModel(programs, variant, points.front(), points.back()).at(layers - rest_layers, rest_layers);
}

Usage measure(KnownPrograms& programs, const Variant& variant) {
  const Needs needs = programs.of(variant, programs.layers());
  Usage usage = lasting(needs, 0, 0);
  for (size_t space = 0; space < usage.bytes.size(); ++space) {
    int64_t largest = 0;
    for (const auto& program : needs) largest = std::max(largest, program->peak[space]);
    usage.bytes[space] += largest;
  }
  for (const auto& program : needs) usage.seconds += step_count(program->name, variant) * program->seconds;
  return usage;
}

}  // namespace plimsoll
