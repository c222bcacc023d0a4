#include "plan/search/depth_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <concepts>
#include <functional>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "base/units.h"
#include "layout/program_layout.h"
#include "plan/program/variant_fields.h"
#include "plan/search/places.h"

namespace plimsoll {
namespace {

// Regression over models of 1 to 80 layers, full and LoRA: what the process keeps beyond arena and data.
constexpr int64_t kHeapBase = kMiB;
constexpr int64_t kHeapPerOp = 1024;
constexpr int64_t kHeapPerTensor = 640;

std::atomic<int64_t> work_done = 0;

// A stack of fewer layers is measured as it is, and with it the model.
constexpr int64_t kFewest = 7;

// Returns whether a choice is what others are bounded by: all layers at one point.
bool bounds_others(const RecomputeChoice& choice) {
  const auto& layers = choice.layers;
  return choice.segment == 1 &&
         std::ranges::all_of(layers, [&](RecomputePoint point) { return point == layers.front(); });
}

std::vector<int64_t> depths_of_each(const Experiment& experiment, int64_t layers) {
  return std::vector<int64_t>(experiment.model.stacks().size(), layers);
}

}  // namespace

int64_t planning_work() { return work_done; }
void add_planning_work(int64_t ops) { work_done += ops; }

bool has_many_layers(const Experiment& experiment) { return experiment.model.layers >= kFewest; }

bool is_deep(const Experiment& experiment) {
  return experiment.layers_are_alike() && std::ranges::min(experiment.model.stacks()) >= kFewest;
}

int64_t program_heap_bytes(int64_t ops, int64_t tensors) {
  return kHeapBase + ops * kHeapPerOp + tensors * kHeapPerTensor;
}

int64_t program_heap_bytes(std::span<const Graph> programs) {
  int64_t ops = 0, tensors = 0;
  for (const Graph& graph : programs) {
    ops += std::ssize(graph.ops());
    tensors += std::ssize(graph.tensors());
  }
  return program_heap_bytes(ops, tensors);
}

void KnownPrograms::add_depths(Key& key, const Experiment& experiment) {
  for (const int64_t depth : experiment.model.stacks()) key.push_back(depth);
}

// Adds the places of the parts that a program knows of, and when they are fetched where any is.
void KnownPrograms::add_targets(Key& key, const OffloadChoice& choice, const std::vector<Part>& parts) {
  bool any = false;
  for (const Part part : parts) {
    const PartTarget& target = choice.of(part);
    key.push_back(target.on_disk);
    key.push_back(target.on_host);
    any = any || target.any();
  }
  key.push_back(any ? choice.prefetch : 0);
}

KnownModels::KnownModels() = default;
KnownModels::~KnownModels() = default;

bool KnownModels::is_of(const Experiment& experiment, const DeviceDescription& device, const NodeCopy& copy) {
  const Key facts = {experiment.model.layers,
                     experiment.model.hidden,
                     experiment.model.vocab,
                     static_cast<int64_t>(experiment.task.task),
                     experiment.effective_batch,
                     experiment.max_length,
                     experiment.target_length,
                     experiment.shares_prefixes ? 1 : 0,
                     experiment.longest_sample,
                     experiment.longest_shared,
                     experiment.common_begin,
                     experiment.documents,
                     experiment.evaluates,
                     experiment.ranks,
                     copy.processes,
                     experiment.lora ? 1 : 0,
                     experiment.lora ? experiment.lora_options.r : 0,
                     experiment.quantised ? 1 + static_cast<int64_t>(experiment.quantisation.format) : 0,
                     static_cast<int64_t>(experiment.optimizer.kind),
                     static_cast<int64_t>(experiment.optimizer.shard),
                     device.reaches_host ? 1 : 0,
                     device.threads,
                     static_cast<int64_t>(device.backend),
                     static_cast<int64_t>(device.isa)};
  if (of_.empty()) of_ = facts;
  return of_ == facts;
}

const KnownModels::Known* KnownModels::find(const Key& key) const {
  const auto known = models_.find(key);
  return known == models_.end() ? nullptr : &known->second;
}

const DepthModel& KnownModels::add(const Key& key, DepthModel model, int64_t ops) {
  Known& known = models_[key];
  known = {std::make_unique<const DepthModel>(std::move(model)), ops};
  return *known.model;
}

KnownPrograms::KnownPrograms(const Experiment& experiment, const DeviceDescription& device, FillingOf filling,
                             std::shared_ptr<KnownModels> models, bool relocates, const NodeCopy& copy)
    : experiment_(experiment),
      device_(device),
      filling_of_(std::move(filling)),
      time_(std::in_place, device.rates),
      models_(models && models->is_of(experiment, device, copy) ? std::move(models)
                                                                : std::make_shared<KnownModels>()),
      relocates_(relocates && !device.reaches_host),
      copy_(copy) {
  models_->is_of(experiment, device, copy);
}

void KnownPrograms::enter_capacity_of(const Variant& variant) {
  const std::pair capacity{variant.micro_batch, variant.micro_tokens};
  if (capacity_ == capacity) return;
  capacity_ = capacity;
  micro_steps_.clear();
  micro_step_twins_.clear();
  if (filling_of_) time_.emplace(device_.rates, filling_of_(variant));
}

void KnownPrograms::count(int64_t ops) {
  ops_built_ += ops;
  add_planning_work(ops);
}

MeasuredProgram KnownPrograms::measured(const Graph& graph, const Variant& variant, Samples samples,
                                        const std::vector<int64_t>& chunks, bool bounds) {
  count(std::ssize(graph.ops()));
  const double runs = runs_per_step(graph, variant, time_->filling());
  MeasuredProgram measured(graph, runs, samples, chunks, device_, *time_, bounds);
  measured.set_use(use_of(graph, variant, time_->filling()));
  return measured;
}

// Returns whether this program's needs follow from those with other offload targets.
bool KnownPrograms::may_relocate(const OffloadChoice& choice, const std::vector<Part>& parts) const {
  return relocates_ && std::ranges::all_of(parts, [&](Part part) { return choice.of(part).is_whole(); }) &&
         std::ranges::any_of(parts, [&](Part part) { return choice.of(part).any(); });
}

KnownPrograms::Shared KnownPrograms::relocated(Twins& twins, Key twin, const OffloadChoice& choice,
                                               const std::vector<Part>& parts,
                                               const std::function<MeasuredProgram()>& build) {
  if (!may_relocate(choice, parts)) return std::make_shared<ProgramNeeds>(build().needs());
  OffloadChoice moved = choice;
  for (const Part part : parts)
    if (moved.of(part).any()) moved.of(part) = Space::disk;
  add_targets(twin, moved, parts);
  if (const auto known = twins.find(twin); known != twins.end()) {
    count(known->second.needs().ops.base);
    return std::make_shared<ProgramNeeds>(known->second.with_homes(choice.targets()));
  }
  return std::make_shared<ProgramNeeds>(twins.emplace(std::move(twin), build()).first->second.needs());
}

KnownPrograms::Shared KnownPrograms::micro_step_of(const Experiment& experiment, const Variant& variant,
                                                   Samples samples, const std::vector<int64_t>& chunks) {
  const OffloadChoice& o = variant.offload;
  const bool updates = variant.update_in_backward;
  Key twin = {static_cast<int64_t>(samples),
              variant.accumulation,
              variant.loss_chunk,
              o.smallest_bytes,
              updates ? 1 : 0,
              updates ? o.slice_elements : 0,
              variant.recompute.segment,
              static_cast<int64_t>(chunks.size())};
  twin.insert(twin.end(), chunks.begin(), chunks.end());
  std::vector<Part> parts = {Part::gradients, Part::weights, Part::activations};
  if (updates) parts.push_back(Part::states);
  add_depths(twin, experiment);
  for (const RecomputePoint point : variant.recompute.layers) twin.push_back(static_cast<int64_t>(point));
  Key key = twin;
  add_targets(key, o, parts);
  Shared& micro_step = micro_steps_[key];
  if (micro_step == nullptr)
    micro_step = relocated(micro_step_twins_, std::move(twin), o, parts, [&] {
      const Graph& train = trains_.of(experiment, variant);
      return measured(finish_programs(experiment, variant, device_, train, Programs::micro_step).front(),
                      variant, samples, chunks, bounds_others(variant.recompute));
    });
  return micro_step;
}

KnownPrograms::Shared KnownPrograms::of_mixture(const Experiment& experiment, Samples samples,
                                                const std::function<Shared(const Experiment&)>& mixture) {
  const size_t stacks = experiment.model.stacks().size();
  const std::vector<int64_t> depths(stacks, kSampledFirst + kSampledRest);
  const std::optional<ProgramNeeds> needs = in_samples(*mixture(of_depth(depths)), stacks, samples);
  return needs ? std::make_shared<ProgramNeeds>(*needs) : nullptr;
}

KnownPrograms::Shared KnownPrograms::update_of(const Experiment& experiment, const Variant& variant,
                                               Samples samples, const std::vector<int64_t>& chunks) {
  const OffloadChoice& o = variant.offload;
  const std::vector<Part> parts = {Part::states, Part::gradients, Part::weights};
  Key twin = {static_cast<int64_t>(samples), static_cast<int64_t>(chunks.size()), o.slice_elements,
              o.smallest_bytes};
  add_depths(twin, experiment);
  Key key = twin;
  add_targets(key, o, parts);
  Shared& update = updates_[key];
  if (update != nullptr) return update;
  if (is_in_segments(samples))
    update = of_mixture(experiment, samples, [&](const Experiment& of_depth) {
      return update_of(of_depth, variant, Samples::mixture, chunks);
    });
  if (update != nullptr) return update;
  Variant plain = variant;
  plain.recompute = {};
  return update = relocated(update_twins_, std::move(twin), o, parts, [&] {
           const Graph& train = trains_.keeping(experiment, plain);
           return measured(finish_programs(experiment, plain, device_, train, Programs::update).front(),
                           variant, samples, chunks);
         });
}

KnownPrograms::Shared KnownPrograms::evaluation_of(const Experiment& experiment, const Variant& variant,
                                                   Samples samples, const std::vector<int64_t>& chunks) {
  const OffloadChoice& o = variant.offload;
  Key key = chunks;
  for (const int64_t part :
       {static_cast<int64_t>(samples), variant.eval_micro_batch, variant.eval_micro_tokens, o.smallest_bytes})
    key.push_back(part);
  add_targets(key, o, {Part::weights});
  add_depths(key, experiment);
  Shared& evaluation = evaluations_[key];
  if (evaluation != nullptr) return evaluation;
  if (is_in_segments(samples))
    evaluation = of_mixture(experiment, samples, [&](const Experiment& of_depth) {
      return evaluation_of(of_depth, variant, Samples::mixture, chunks);
    });
  if (evaluation != nullptr) return evaluation;
  Variant plain = variant;
  plain.recompute = {};
  return evaluation = std::make_shared<ProgramNeeds>(
             measured(finish_programs(experiment, plain, device_, Graph(), Programs::evaluation).front(),
                      variant, samples, chunks)
                 .needs());
}

const Experiment& KnownPrograms::of_depth(const std::vector<int64_t>& depths) {
  const auto [known, is_new] = by_depth_.try_emplace(depths, experiment_);
  if (is_new && depths != experiment_.model.stacks())
    known->second.model = experiment_.model.with_stacks(depths);
  return known->second;
}

KnownPrograms::Needs KnownPrograms::of(const Variant& variant, const std::vector<int64_t>& depths,
                                       Samples samples, const std::vector<int64_t>& chunks) {
  const Experiment& experiment = of_depth(depths);
  enter_capacity_of(variant);
  Needs needs = {micro_step_of(experiment, variant, samples, chunks)};
  if (experiment.evaluates) needs.push_back(evaluation_of(experiment, variant, samples, chunks));
  if (!variant.update_in_backward) needs.push_back(update_of(experiment, variant, samples, chunks));
  return needs;
}

namespace {

void add_to_key(KnownModels::Key& key, const PartTarget& target) {
  key.push_back(target.on_disk);
  key.push_back(target.on_host);
}
void add_to_key(KnownModels::Key& key, const std::vector<RecomputePoint>& points) {
  key.push_back(std::ssize(points));
  for (const RecomputePoint point : points) key.push_back(static_cast<int64_t>(point));
}
template <std::integral T>
void add_to_key(KnownModels::Key& key, T value) {
  key.push_back(value);
}

}  // namespace

const DepthModel& KnownPrograms::model(const Variant& variant, const std::vector<int64_t>& depths,
                                       Samples samples, const std::vector<int64_t>& chunks) {
  KnownModels::Key key = {static_cast<int64_t>(samples)};
  for_each_field(variant, [&](std::string_view, const auto& field) { add_to_key(key, field); });
  for (const auto* list : {&depths, &chunks}) {
    key.push_back(std::ssize(*list));
    key.insert(key.end(), list->begin(), list->end());
  }
  if (const KnownModels::Known* known = models_->find(key)) {
    if (counted_.insert(known->model.get()).second) count(known->ops);
    return *known->model;
  }
  const int64_t before = ops_built_;
  DepthModel made(of(variant, depths, samples, chunks), chunks.size(), copy_);
  const DepthModel& added = models_->add(key, std::move(made), ops_built_ - before);
  counted_.insert(&added);
  return added;
}

namespace {

// The bytes of an arena that a tensor counts.
AffineBytes counted_bytes(const ProgramNeeds::Persistent& tensor, const NodeCopy& copy) {
  if (!copy.has(tensor.role, tensor.space, tensor.is_piece)) return tensor.bytes;
  AffineBytes share = tensor.bytes;
  share.base = copy.share_of(share.base);
  for (int64_t& slope : share.slope) slope = copy.share_of(slope);
  return share;
}

}  // namespace

DepthModel::DepthModel(const KnownPrograms::Needs& needs, size_t chunks, const NodeCopy& copy)
    : loss_transient_(chunks), shares_(needs.front()->shares) {
  std::vector<const std::string*> known;  // names of persistent tensors, in the order of their addresses
  std::array<Largest, 3> largest;
  Largest in_midst, at_end;
  std::vector<Largest> of_loss(chunks);
  bool shares = false;
  for (const auto& program : needs) {
    const std::ptrdiff_t before = std::ssize(known);
    for (const ProgramNeeds::Persistent& tensor : program->persistent) {
      const std::string* name = &tensor.name.text();
      if (std::binary_search(known.begin(), known.begin() + before, name, std::less<>())) continue;
      known.push_back(name);
      const AffineBytes bytes = counted_bytes(tensor, copy);
      shares = shares || copy.has(tensor.role, tensor.space, tensor.is_piece);
      persistent_[index(tensor.space)].add(bytes, 1);
      if (tensor.block == kNoBlock) continue;
      const auto block = static_cast<size_t>(tensor.block);
      persistent_of_.resize(std::max(persistent_of_.size(), block + 1));
      persistent_of_[block][index(tensor.space)] += bytes.base;
    }
    if (program != needs.back()) std::sort(known.begin(), known.end(), std::less<>());
    for (size_t space = 0; space < largest.size(); ++space)
      for (const AffineBytes& alive : program->transient[space]) largest[space].take(alive);
    for (const ProgramNeeds::Loss& loss : program->losses)
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        of_loss[chunk].take({loss.alive.base + loss.workspace[chunk], loss.alive.slope});
    for (const AffineBytes& alive : program->in_midst) in_midst.take(alive);
    for (const AffineBytes& alive : program->at_end) at_end.take(alive);
    floor_ = std::max(floor_, program->floor_bytes);
    ops_.add(program->ops, 1);
    tensors_.add(program->tensors, 1);
    disk_traffic_.add(program->disk_traffic, program->runs);
    timed_.push_back({program->runs, program->use, program->moves_disk, program->calls, program->compute,
                      program->together, program->io, program->disk_traffic, program->moved});
  }
  if (shares) persistent_[index(copy.space)].base += copy.share_of_last_page();
  for (size_t space = 0; space < largest.size(); ++space) transient_[space] = largest[space].list();
  in_midst_ = in_midst.list();
  at_end_ = at_end.list();
  for (size_t chunk = 0; chunk < chunks; ++chunk) loss_transient_[chunk] = of_loss[chunk].list();
}

const DepthModel& DepthModel::exact(KnownPrograms& programs, const Variant& variant,
                                    const std::vector<int64_t>& chunks) {
  return programs.model(variant, programs.experiment().model.stacks(), Samples::none, chunks);
}

const DepthModel& DepthModel::mixture(KnownPrograms& programs, Variant variant,
                                      const std::vector<int64_t>& chunks,
                                      const std::vector<StackPoints>& points) {
  variant.recompute = {};
  auto& layers = variant.recompute.layers;
  for (const auto& [first, rest] : points) {
    layers.insert(layers.end(), kSampledFirst, first);
    layers.insert(layers.end(), kSampledRest, rest);
  }
  const std::vector<int64_t> depths(points.size(), kSampledFirst + kSampledRest);
  return programs.model(variant, depths, Samples::mixture, chunks);
}

const DepthModel& DepthModel::segments(KnownPrograms& programs, Variant variant,
                                       const std::vector<int64_t>& chunks, Segments segments) {
  const Samples samples = segments == Segments::pairs ? Samples::pairs : Samples::segments;
  const int64_t segment = segment_size(samples);
  const auto depths = depths_of_each(programs.experiment(), kSampledSegments * segment);
  const auto layers = static_cast<size_t>(std::accumulate(depths.begin(), depths.end(), int64_t{0}));
  variant.recompute = {std::vector<RecomputePoint>(layers, RecomputePoint::block), segment};
  return programs.model(variant, depths, samples, chunks);
}

int64_t DepthModel::transient(Space space, const More& alive, size_t chunk) const {
  int64_t bytes = 0;
  for (const AffineBytes& at : transient_[index(space)]) bytes = std::max(bytes, at.at(alive));
  if (space != Space::device) return bytes;
  for (const AffineBytes& at : loss_transient_[chunk]) bytes = std::max(bytes, at.at(alive));
  return bytes;
}

Usage DepthModel::usage(const More& blocks, const More& alive, size_t chunk) const {
  Usage usage;
  for (const Space space : {Space::device, Space::host, Space::disk}) {
    usage.persistent[index(space)] = persistent_[index(space)].at(blocks);
    usage.bytes[index(space)] = usage.persistent[index(space)] + transient(space, alive, chunk);
  }
  usage.ops = ops_.at(blocks);
  usage.program_bytes = program_heap_bytes(usage.ops, tensors_.at(blocks));
  usage.disk_traffic = std::llround(disk_traffic_.at(blocks));
  for (size_t i = 0; i < timed_.size(); ++i) {
    const Timed& program = timed_[i];
    const double seconds = std::max(
        {program.together[chunk].at(blocks), program.compute[chunk].at(blocks), program.io.at(blocks)});
    usage.seconds += program.count * seconds;
    usage.busy += program.count * std::max(program.compute[chunk].at(blocks), program.io.at(blocks));
    usage.io[i] = program.io.at(blocks);
    usage.disk[i] = program.disk.at(blocks);
    usage.runs[i] = {.runs = program.count,
                     .seconds = seconds,
                     .calls = {program.calls[chunk].at(blocks), program.moves_disk},
                     .use = program.use};
  }
  return usage;
}

const Usage& DepthModel::at(size_t chunk) const {
  exact_.resize(loss_transient_.size());
  std::optional<Usage>& known = exact_[chunk];
  if (!known) known = usage({}, {}, chunk);
  return *known;
}

std::vector<DepthModel::OfBlock> DepthModel::blocks() const {
  size_t count = persistent_of_.size();
  for (const Timed& program : timed_) count = std::max(count, program.moved.size());
  std::vector<OfBlock> blocks(count);
  for (size_t block = 0; block < count; ++block) {
    if (block < persistent_of_.size()) blocks[block].persistent = persistent_of_[block];
    for (size_t i = 0; i < timed_.size(); ++i) {
      if (block >= timed_[i].moved.size()) continue;
      blocks[block].io[i] = timed_[i].moved[block].io;
      blocks[block].disk[i] = timed_[i].moved[block].disk;
    }
  }
  return blocks;
}

std::vector<DepthModel::OfBlock> DepthModel::blocks(const std::vector<int64_t>& depths) const {
  std::vector<OfBlock> blocks;
  for (size_t stack = 0; stack < depths.size(); ++stack) {
    const size_t slot = stack * kSlotsOfStack;
    OfBlock block;
    for (size_t space = 0; space < block.persistent.size(); ++space)
      block.persistent[space] = persistent_[space].slope[slot];
    for (size_t i = 0; i < timed_.size(); ++i) {
      block.io[i] = timed_[i].io.slope[slot];
      block.disk[i] = timed_[i].disk.slope[slot];
    }
    blocks.insert(blocks.end(), static_cast<size_t>(depths[stack]), block);
  }
  return blocks;
}

Usage DepthModel::at(const std::vector<StackDepth>& stacks, size_t chunk) const {
  check_internal(stacks.size() <= kMostStacks, "DepthModel: too many stacks");
  More more{};
  for (size_t i = 0; i < stacks.size(); ++i) {
    const auto& [blocks, first] = stacks[i];
    const size_t slot = i * kSlotsOfStack;
    // All at one point: both halves of what was measured are of the first slot.
    more[slot] = first == blocks ? blocks - kSampledFirst - kSampledRest : first - kSampledFirst;
    more[slot + 1] = first == blocks ? 0 : blocks - first - kSampledRest;
  }
  return usage(more, more, chunk);
}

Usage DepthModel::in_segments(const std::vector<int64_t>& depths, int64_t segment, size_t chunk) const {
  constexpr int64_t kMidst = kSampledSegments * (kSampledSegment - 2);
  More blocks{}, alive{};
  for (size_t i = 0; i < depths.size(); ++i) {
    const size_t slot = i * kSlotsOfStack;
    const int64_t segments = ceil_div(depths[i], segment);
    const int64_t last = depths[i] - (segments - 1) * segment;
    blocks[slot] = blocks[slot + 2] = alive[slot] = segments - kSampledSegments;
    if (segment == 2) {
      blocks[slot] -= 2 - last;  // one block alone counts as the last of two
      alive[slot + 2] = last - 2;
    } else {
      blocks[slot + 1] = depths[i] - 2 * segments - kMidst;
      alive[slot + 1] = segment - kSampledSegment;
      alive[slot + 2] = last - kSampledSegment;
    }
  }
  return usage(blocks, alive, chunk);
}

DepthModel::Floor DepthModel::floor_beside(int64_t transient, const More& blocks) const {
  return {
      persistent_[index(Space::device)].at(blocks) + transient,
      persistent_[index(Space::host)].at(blocks) + program_heap_bytes(ops_.at(blocks), tensors_.at(blocks))};
}

namespace {

constexpr int64_t kSampled = kSampledFirst + kSampledRest;

More beyond_sampled(const std::vector<int64_t>& depths) {
  More more{};
  for (size_t i = 0; i < depths.size(); ++i) more[i * kSlotsOfStack] = depths[i] - kSampled;
  return more;
}

}  // namespace

DepthModel::Floor DepthModel::floor_of_ops(const std::vector<int64_t>& depths) const {
  return floor_beside(floor_, beyond_sampled(depths));
}

DepthModel::Floor DepthModel::floor(const std::vector<int64_t>& depths, size_t chunk) const {
  const auto least = [](const std::vector<AffineBytes>& list) {
    int64_t bytes = 0;
    for (const AffineBytes& at : list) {
      int64_t kept = 0;
      for (size_t slot = 0; slot < kSlots; slot += kSlotsOfStack)
        kept += kSampled * std::max(at.slope[slot], at.slope[slot + 1]);
      bytes = std::max(bytes, at.base - kept);
    }
    return bytes;
  };
  return floor_beside(std::max(least(transient_[index(Space::device)]), least(loss_transient_[chunk])),
                      beyond_sampled(depths));
}

// The first layers, with as many of them below.
int64_t DepthModel::least_of_first(int64_t layers) const {
  int64_t bytes = 0;
  for (const AffineBytes& at : in_midst_)
    bytes = std::max(bytes, at.base + at.slope[0] * (layers - kSampledFirst));
  return bytes;
}

// The last of so many layers and the loss count, with what the first ones keep. Programs without a backward pass keep
// nothing.
int64_t DepthModel::least_of_rest(int64_t layers, int64_t kept_of_first, size_t chunk) const {
  int64_t bytes = 0;
  for (const auto* list : {&at_end_, &loss_transient_[chunk]})
    for (const AffineBytes& at : *list)
      bytes = std::max(bytes, at.base - kSampledFirst * at.slope[0] + at.slope[1] * (layers - kSampledRest) +
                                  (at.slope[0] > 0 ? kept_of_first : 0));
  return bytes;
}

// By the last of the first layers and the last of all, which are alike whatever the others recompute. The model's first
// layer may keep less than another one.
int64_t DepthModel::transient_between(const DepthModel& first, const DepthModel& rest, int64_t layers,
                                      size_t chunk) {
  int64_t kept = 0;
  for (const AffineBytes& at : first.in_midst_) kept = std::max(kept, at.slope[0]);
  const auto at = [&](int64_t place) {
    return std::max(first.least_of_first(place),
                    rest.least_of_rest(layers - place, (place - 1) * kept, chunk));
  };
  return at(least_place(1, layers - 1, at));
}

DepthModel::Floor DepthModel::floor() const { return floor_beside(floor_, {}); }

Usage estimate(KnownPrograms& programs, const Variant& variant) {
  const Experiment& experiment = programs.experiment();
  const std::vector<int64_t> chunks = {variant.loss_chunk};
  const std::vector<int64_t> depths = experiment.model.stacks();
  // Few layers do not stand for a model's where a part is in several places.
  const bool is_whole =
      std::ranges::all_of(kEveryPart, [&](Part part) { return variant.offload.of(part).is_whole(); });
  if (!is_deep(experiment) || !is_whole) return measure(programs, variant);
  if (variant.recompute.segment > 1)
    return DepthModel::segments(programs, variant, chunks, DepthModel::segments_of(variant.recompute.segment))
        .in_segments(depths, variant.recompute.segment, 0);
  std::vector<RecomputePoint> layers = variant.recompute.layers;
  layers.resize(static_cast<size_t>(experiment.model.layers), RecomputePoint::none);
  std::vector<StackPoints> points;
  std::vector<StackDepth> blocks;
  auto begin = layers.begin();
  for (const int64_t depth : depths) {
    const auto end = begin + depth;
    const auto change = std::find_if(begin, end, [&](RecomputePoint point) { return point != *begin; });
    if (std::find_if(change, end, [&](RecomputePoint point) { return point != *change; }) != end)
      return measure(programs, variant);
    points.push_back({*begin, *(end - 1)});
    blocks.push_back({depth, change - begin});
    begin = end;
  }
  return DepthModel::mixture(programs, variant, chunks, points).at(blocks, 0);
}

Usage measure(KnownPrograms& programs, const Variant& variant) {
  return DepthModel::exact(programs, variant, {variant.loss_chunk}).at(0);
}

}  // namespace plimsoll
