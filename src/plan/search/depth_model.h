// Bytes and seconds of a variant at any depth, measured on its real programs at a depth of a few layers.
//
// The blocks of a stack repeat, so the bytes alive at an op and the seconds of a step are affine in the
// number of blocks of each stack at each recompute point: one block is taken for all of its kind and point.
// What is alive at the busiest op of the last block of a kind is the most for that kind, since the backward
// pass takes blocks from the last to the first. So the programs of 6 layers tell the lower bound of the arena
// for 80; in segments, those of three segments of three layers, or of two. Rows of logits at a time change
// nothing but the workspace and the seconds of the loss, so that one program stands for all of them. The
// planner checks every plan that it chooses against the program of full depth (search.h).
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "layout/program_layout.h"
#include "plan/program/experiment.h"
#include "plan/program/program_needs.h"
#include "plan/program/time_model.h"
#include "plan/program/train_graphs.h"

namespace plimsoll {

// The work of all plans that this process has made or looked for, in ops that were measured: the same for the
// same questions, however busy the machine is. Some two million take a second.
int64_t planning_work();
void add_planning_work(int64_t ops);
inline constexpr int64_t kLayoutWork = 4;  // of laying an op out

// The memory and time that a variant takes of a machine.
struct Usage {
  std::array<int64_t, 3> bytes{};       // by Space: lower bound of each space's arena
  int64_t program_bytes = 0;            // of the host, for the programs themselves
  int64_t ops = 0;                      // of all programs
  int64_t disk_traffic = 0;             // bytes read from and written to the disk in an optimizer step
  double seconds = 0;                   // of an optimizer step
  double busy = 0;                      // the same where no op waits for a transfer
  std::array<ProgramRun, 3> runs;       // of micro-step, evaluation and update, for what launches add
  int64_t graph_bytes = 0;              // of the device, counted in `bytes`: of captured graphs
  std::array<int64_t, 3> persistent{};  // by Space, counted in `bytes`
  // Seconds of transfers and bytes of the disk of one run of each program.
  std::array<double, 3> io{}, disk{};
  [[nodiscard]] int64_t of(Space space) const { return bytes[index(space)]; }
};

// Bytes of the process's heap for programs: what planning and binding them was measured to leave resident.
int64_t program_heap_bytes(int64_t ops, int64_t tensors);
int64_t program_heap_bytes(std::span<const Graph> programs);

class DepthModel;

// Models that searches measured of one experiment on one device. Further searches of both, within other budgets or
// among other offload targets, are given them (PlanRequest::measured).
class KnownModels {
 public:
  // By all that a program depends on.
  using Key = std::vector<int64_t>;
  struct Known {
    std::unique_ptr<const DepthModel> model;
    int64_t ops = 0;  // of the programs that were built for it
  };
  KnownModels();
  ~KnownModels();
  KnownModels(const KnownModels&) = delete;
  KnownModels& operator=(const KnownModels&) = delete;
  // Returns true for the workload and the device of the first call, as far as requests that are made of one recipe
  // differ.
  bool is_of(const Experiment& experiment, const DeviceDescription& device, const NodeCopy& copy);
  [[nodiscard]] const Known* find(const Key& key) const;
  const DepthModel& add(const Key& key, DepthModel model, int64_t ops);

 private:
  std::map<Key, Known> models_;
  Key of_;  // facts of the experiment and the device; empty: nobody asked
};

// Programs of one experiment, each built and measured once for all variants that have it in common. Updates
// are alike where the same parts have the same offload targets, and going slice by slice they have most of the ops;
// evaluations likewise. Offload targets of optimizer states change no micro-step that leaves updates to the
// update.
class KnownPrograms {
 public:
  // Experiment and device must outlive this.
  using FillingOf = std::function<Filling(const Variant&)>;
  // `models`: of other searches of both; none: its own. `relocates`: what moves may go to several offload targets.
  KnownPrograms(const Experiment& experiment, const DeviceDescription& device, FillingOf filling = {},
                std::shared_ptr<KnownModels> models = {}, bool relocates = false, const NodeCopy& copy = {});

  using Needs = std::vector<std::shared_ptr<const ProgramNeeds>>;
  // Those of the variant with each of `chunks` rows of logits, for a model of so many layers of each stack.
  Needs of(const Variant& variant, const std::vector<int64_t>& depths, Samples samples,
           const std::vector<int64_t>& chunks);
  // A model of them, which is built once.
  const DepthModel& model(const Variant& variant, const std::vector<int64_t>& depths, Samples samples,
                          const std::vector<int64_t>& chunks);
  [[nodiscard]] const std::shared_ptr<KnownModels>& models() const { return models_; }
  [[nodiscard]] const Experiment& experiment() const { return experiment_; }
  // Ops of all programs built so far, and of those that another search had built: the work that was done without it.
  [[nodiscard]] int64_t ops_built() const { return ops_built_; }

 private:
  MeasuredProgram measured(const Graph& graph, const Variant& variant, Samples samples,
                           const std::vector<int64_t>& chunks, bool bounds = true);
  void count(int64_t ops);
  [[nodiscard]] bool may_relocate(const OffloadChoice& choice, const std::vector<Part>& parts) const;
  using Shared = std::shared_ptr<const ProgramNeeds>;
  using Key = std::vector<int64_t>;
  using Twins = std::map<Key, MeasuredProgram>;
  Shared micro_step_of(const Experiment& experiment, const Variant& variant, Samples samples,
                       const std::vector<int64_t>& chunks);
  Shared update_of(const Experiment& experiment, const Variant& variant, Samples samples,
                   const std::vector<int64_t>& chunks);
  Shared evaluation_of(const Experiment& experiment, const Variant& variant, Samples samples,
                       const std::vector<int64_t>& chunks);
  // The needs of a program whose `parts` move as `choice` says: those of its twin, which is like it but for the offload
  // targets. `twin` is its key without them, `build` builds it.
  Shared relocated(Twins& twins, Key twin, const OffloadChoice& choice, const std::vector<Part>& parts,
                   const std::function<MeasuredProgram()>& build);
  // The needs of a program without recomputation by those of a mixture's, where these tell them.
  Shared of_mixture(const Experiment& experiment, Samples samples,
                    const std::function<Shared(const Experiment&)>& mixture);

  const Experiment& of_depth(const std::vector<int64_t>& depths);

  const Experiment& experiment_;
  const DeviceDescription& device_;
  std::map<std::vector<int64_t>, Experiment> by_depth_;  // by layers of each stack
  TrainGraphs trains_;
  // Graphs, times and micro-steps are of one capacity: the search goes from one to the next.
  void enter_capacity_of(const Variant& variant);

  FillingOf filling_of_;  // empty: full
  std::optional<TimeModel> time_;
  std::optional<std::pair<int64_t, int64_t>> capacity_;
  int64_t ops_built_ = 0;
  std::shared_ptr<KnownModels> models_;
  std::set<const DepthModel*> counted_;  // whose work is in ops_built_
  bool relocates_;
  NodeCopy copy_;
  static void add_targets(Key& key, const OffloadChoice& choice, const std::vector<Part>& parts);
  static void add_depths(Key& key, const Experiment& experiment);
  std::map<Key, Shared> micro_steps_, updates_, evaluations_;
  Twins micro_step_twins_, update_twins_;
};

// Blocks of one stack, the first of them at one point of recomputation and the rest at another.
struct StackDepth {
  int64_t blocks = 0;
  int64_t first = 0;  // from 1 to blocks; all of them only where both points are the same
};

// Returns true if a layer is a small share of all, of an encoder and a decoder together.
bool has_many_layers(const Experiment& experiment);

// Returns true if a few layers of each stack stand for all: there are many, and they are alike. Others are measured as they are.
bool is_deep(const Experiment& experiment);

// Two points of recomputation in one stack.
struct StackPoints {
  RecomputePoint first = RecomputePoint::none, rest = RecomputePoint::none;
};

// One way to recompute, at any depth and any of the measured rows of logits.
class DepthModel {
 public:
  // A model of programs that were measured alike. What the processes of a node have once counts by its share.
  DepthModel(const KnownPrograms::Needs& needs, size_t chunks, const NodeCopy& copy = {});

  // The variant as it is, at full depth. These stay where they are as long as the programs do.
  static const DepthModel& exact(KnownPrograms& programs, const Variant& variant,
                                 const std::vector<int64_t>& chunks);
  // The first layers of each stack at one point, all others of it at another; `variant.recompute` is ignored.
  static const DepthModel& mixture(KnownPrograms& programs, Variant variant,
                                   const std::vector<int64_t>& chunks,
                                   const std::vector<StackPoints>& points);
  // All layers at `block`, in segments of two, or of any more.
  enum class Segments : uint8_t { pairs, longer };
  static const DepthModel& segments(KnownPrograms& programs, Variant variant,
                                    const std::vector<int64_t>& chunks, Segments segments);

  static Segments segments_of(int64_t segment) { return segment == 2 ? Segments::pairs : Segments::longer; }

  // Persistent bytes of one block by space, and its transfers as in Usage.
  struct OfBlock {
    std::array<int64_t, 3> persistent{};
    std::array<double, 3> io{}, disk{};
  };
  // Each block of an exact model.
  [[nodiscard]] std::vector<OfBlock> blocks() const;
  // Each block of a mixture that is all at one point, by stack of the model.
  [[nodiscard]] std::vector<OfBlock> blocks(const std::vector<int64_t>& depths) const;

  // For an exact model.
  [[nodiscard]] const Usage& at(size_t chunk) const;
  // The usage of a mixture, by stack of the model.
  [[nodiscard]] Usage at(const std::vector<StackDepth>& stacks, size_t chunk) const;
  // The usage in segments of so many layers, of the kind that was measured.
  [[nodiscard]] Usage in_segments(const std::vector<int64_t>& depths, int64_t segment, size_t chunk) const;
  // A lower bound for every choice of recomputation, by a model that recomputes nothing and moves no
  // activations: a mixture, an exact one.
  struct Floor {
    int64_t device = 0, host = 0;  // bytes; of the host with those for the programs
  };
  [[nodiscard]] Floor floor(const std::vector<int64_t>& depths, size_t chunk) const;
  [[nodiscard]] Floor floor() const;
  // And what none goes below that moves activations, whatever is fetched for an op: by a mixture.
  [[nodiscard]] Floor floor_of_ops(const std::vector<int64_t>& depths) const;
  // Transient bytes of the device that no mixture goes below that has so many layers, in one stack, some of the first ones
  // at one point and the rest at the other: by mixtures that have all layers at one of them.
  static int64_t transient_between(const DepthModel& first, const DepthModel& rest, int64_t layers,
                                   size_t chunk);
  // The blocks of an exact model's micro-step, where the layers form one stack; else none.
  [[nodiscard]] const BlockShares& shares() const { return shares_; }

 private:
  struct Timed {
    double count = 0;  // how often a step runs it
    ProgramUse use;
    bool moves_disk = false;
    std::vector<AffineBytes> calls;
    std::vector<AffineSeconds> compute, together;
    AffineSeconds io, disk;
    std::vector<ProgramNeeds::Moved> moved;
  };
  // `blocks`: more blocks of each slot; `alive`: more of what each slot's storages stand for.
  [[nodiscard]] Usage usage(const More& blocks, const More& alive, size_t chunk) const;
  [[nodiscard]] Floor floor_beside(int64_t transient, const More& blocks) const;
  [[nodiscard]] int64_t transient(Space space, const More& alive, size_t chunk) const;
  [[nodiscard]] int64_t least_of_first(int64_t layers) const;
  [[nodiscard]] int64_t least_of_rest(int64_t layers, int64_t kept_of_first, size_t chunk) const;

  std::array<AffineBytes, 3> persistent_;                 // by space
  std::array<std::vector<AffineBytes>, 3> transient_;     // by space
  std::vector<std::vector<AffineBytes>> loss_transient_;  // by chunk, of the device
  std::vector<AffineBytes> in_midst_, at_end_;            // of the device, as in ProgramNeeds
  int64_t floor_ = 0;                                     // beside what is persistent
  std::vector<std::array<int64_t, 3>> persistent_of_;     // by block
  AffineBytes ops_, tensors_;
  AffineSeconds disk_traffic_;  // bytes of a step, as of micro-steps on average
  std::vector<Timed> timed_;
  BlockShares shares_;
  mutable std::vector<std::optional<Usage>> exact_;  // by chunk: what was asked for
};

// The variant's programs at full depth, as they are.
Usage measure(KnownPrograms& programs, const Variant& variant);
// The same by measured depth, where the variant's layers repeat.
Usage estimate(KnownPrograms& programs, const Variant& variant);

}  // namespace plimsoll
