#include "plan/depth_model.h"

#include <algorithm>
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

double step_count(const Graph& graph, const Variant& variant) {
  if (graph.name() == kTrainProgram) return static_cast<double>(variant.accumulation);
  return graph.name() == kUpdateProgram ? 1.0 : 0.0;
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

}  // namespace

int64_t program_heap_bytes(int64_t ops, int64_t tensors) {
  return kHeapBase + ops * kHeapPerOp + tensors * kHeapPerTensor;
}

Usage measure(const std::vector<Graph>& programs, const Variant& variant, const DeviceRates& rates) {
  Usage usage;
  for (const Space space : {Space::device, Space::host, Space::disk})
    usage.bytes[index(space)] = arena_lower_bound(programs, space);
  int64_t ops = 0;
  int64_t tensors = 0;
  for (const Graph& graph : programs) {
    ops += static_cast<int64_t>(graph.ops().size());
    tensors += static_cast<int64_t>(graph.tensors().size());
  }
  usage.program_bytes = program_heap_bytes(ops, tensors);
  usage.seconds = predict_step_seconds(programs, variant, rates);
  return usage;
}

DepthModel::DepthModel(const Experiment& experiment, const Variant& variant, RecomputePoint first,
                       RecomputePoint rest, const DeviceDescription& device) {
  Variant sample = variant;
  sample.recompute = {{first, first, first, rest, rest, rest}, 1};
  const auto programs = build_programs(shallow(experiment, kLayers), sample, device);
  std::set<std::string_view> known;
  for (const Graph& graph : programs) {
    for (const Tensor& tensor : graph.tensors()) {
      const int32_t layer = layer_of(tensor.name);
      tensors_.base += 1;
      tensors_.first += layer == kFirstSample;
      tensors_.rest += layer == kRestSample;
      if (!is_persistent(tensor.role) || !known.insert(tensor.name).second) continue;
      Affine& bytes = persistent_[index(tensor.space)];
      const int64_t size = round_up(tensor.bytes(), kArenaAlignment);
      bytes.base += size;
      bytes.first += layer == kFirstSample ? size : 0;
      bytes.rest += layer == kRestSample ? size : 0;
    }
    add_lives(graph);
    add_program(graph, step_count(graph, variant), device.rates);
  }
}

void DepthModel::add_program(const Graph& graph, double times, const DeviceRates& rates) {
  Work work;
  work.times = times;
  for (const Op& op : graph.ops()) {
    const int32_t layer = layer_of(op.scope);
    ops_.base += 1;
    ops_.first += layer == kFirstSample;
    ops_.rest += layer == kRestSample;
    tensors_.first += layer == kFirstSample && op.scratch != kNoTensor;
    tensors_.rest += layer == kRestSample && op.scratch != kNoTensor;
    const auto add = [&](Seconds& sum, double seconds) {
      sum.base += seconds;
      sum.first += layer == kFirstSample ? seconds : 0;
      sum.rest += layer == kRestSample ? seconds : 0;
    };
    const bool io = rule_of(op.kind).io;
    add(io ? work.io : work.compute, op_seconds(graph, op, rates));
    if (io) add(work.compute, contention_seconds(graph, op, rates));
  }
  work_.push_back(work);
}

// For each op, what is alive and how much of it belongs to each sample; ops of the samples themselves are
// left out, since the layer after them has the same and more.
void DepthModel::add_lives(const Graph& graph) {
  const size_t n = graph.ops().size();
  std::array<std::vector<Affine>, 3> change;
  for (auto& of_space : change) of_space.resize(n + 1);
  for (const StorageLife& life : storage_lives(graph)) {
    const int32_t sample = sample_of(graph, life);
    const Affine step{life.bytes, sample == kFirstSample ? life.bytes : 0,
                      sample == kRestSample ? life.bytes : 0};
    Affine& begin = change[index(life.space)][static_cast<size_t>(life.first)];
    Affine& end = change[index(life.space)][static_cast<size_t>(life.last) + 1];
    begin = {begin.base + step.base, begin.first + step.first, begin.rest + step.rest};
    end = {end.base - step.base, end.first - step.first, end.rest - step.rest};
  }
  for (size_t space = 0; space < change.size(); ++space) {
    Affine alive;
    for (size_t i = 0; i < n; ++i) {
      const Affine& step = change[space][i];
      alive = {alive.base + step.base, alive.first + step.first, alive.rest + step.rest};
      const int32_t layer = layer_of(graph.ops()[i].scope);
      if (layer == kFirstSample || layer == kRestSample) continue;
      const auto same = std::find_if(
          transient_[space].begin(), transient_[space].end(),
          [&](const Affine& other) { return other.first == alive.first && other.rest == alive.rest; });
      if (same == transient_[space].end()) {
        transient_[space].push_back(alive);
      } else {
        same->base = std::max(same->base, alive.base);
      }
    }
  }
}

Usage DepthModel::at(int64_t first_layers, int64_t rest_layers) const {
  const bool pure = rest_layers == 0;
  const int64_t more_first = pure ? first_layers - kLayers : first_layers - kFirst;
  const int64_t more_rest = pure ? 0 : rest_layers - (kLayers - kFirst);
  check_internal(more_first >= 0 && more_rest >= 0, "DepthModel: fewer layers than were measured");
  Usage usage;
  for (size_t space = 0; space < 3; ++space) {
    int64_t largest = 0;
    for (const Affine& alive : transient_[space])
      largest = std::max(largest, value(alive, more_first, more_rest));
    usage.bytes[space] = value(persistent_[space], more_first, more_rest) + largest;
  }
  usage.program_bytes =
      program_heap_bytes(value(ops_, more_first, more_rest), value(tensors_, more_first, more_rest));
  const auto first = static_cast<double>(more_first);
  const auto rest = static_cast<double>(more_rest);
  for (const Work& work : work_)
    usage.seconds += work.times * std::max(work.compute.at(first, rest), work.io.at(first, rest));
  return usage;
}

}  // namespace plimsoll
