// Bytes and seconds of a variant at any depth, measured on its real programs at a depth of a few layers.
//
// Layers of a decoder repeat, so the bytes alive at an op and the seconds of a step are affine in the number
// of layers at each recompute point: one layer of each kind is taken for all of its kind. What is alive at
// the busiest op of the last layer of a kind is the most for that kind, since the backward pass takes layers
// from the last to the first. So the programs of 6 layers tell the lower bound of the arena for 80. The
// planner checks every plan that it chooses against the program of full depth (search.h).
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/experiment.h"
#include "plan/train_graphs.h"

namespace plimsoll {

// What a variant takes of a machine.
struct Usage {
  std::array<int64_t, 3> bytes{};  // by Space: lower bound of each space's arena
  int64_t program_bytes = 0;       // of the host, for the programs themselves
  double seconds = 0;              // of an optimizer step
  [[nodiscard]] int64_t of(Space space) const { return bytes[static_cast<size_t>(space)]; }
};

// Bytes of the process's heap for programs: what planning and binding them was measured to leave resident.
int64_t program_heap_bytes(int64_t ops, int64_t tensors);

// base + first * (layers at `first` beyond those measured) + rest * (likewise).
struct AffineBytes {
  int64_t base = 0, first = 0, rest = 0;
};
struct AffineSeconds {
  double base = 0, first = 0, rest = 0;
};

// What a program needs: persistent tensors by name, transient bytes alive together (the largest counts),
// time.
struct ProgramNeeds {
  struct Persistent {
    Space space = Space::device;
    AffineBytes bytes;
  };
  std::string name;
  std::map<std::string, Persistent> persistent;
  std::array<std::vector<AffineBytes>, 3> transient;  // by space
  AffineBytes ops, tensors;                           // numbers of them
  AffineSeconds compute, io;
  std::array<int64_t, 3> peak{};  // by space: transient bytes of this program as it is
  double seconds = 0;             // of this program as it is
};
ProgramNeeds needs_of(const Graph& graph, const DeviceRates& rates);

// Programs of one experiment. Updates are alike for all variants that keep the same parts in the same homes,
// and going slice by slice they have most of the ops, so they are built once for each.
class KnownPrograms {
 public:
  // Both must outlive this.
  KnownPrograms(const Experiment& experiment, const DeviceDescription& device)
      : experiment_(experiment), device_(device) {}

  // Those of the variant, for a model of so many layers.
  std::vector<std::shared_ptr<const ProgramNeeds>> of(const Variant& variant, int64_t layers);
  [[nodiscard]] int64_t layers() const { return experiment_.model.layers; }

 private:
  const Experiment& experiment_;
  const DeviceDescription& device_;
  TrainGraphs trains_;
  std::map<std::vector<int64_t>, std::shared_ptr<const ProgramNeeds>> updates_;
};

// The first layers of a model at point `first`, all others at `rest`.
class DepthModel {
 public:
  static constexpr int64_t kLayers = 6;  // of the measured programs: 3 at `first`, 3 at `rest`
  static constexpr int64_t kFirst = 3;
  static constexpr int64_t kFewest = 7;  // shallower models are measured as they are

  // `variant.recompute` is ignored.
  DepthModel(KnownPrograms& programs, const Variant& variant, RecomputePoint first, RecomputePoint rest);

  // first_layers >= 3; rest_layers >= 3, or 0 where both points are the same.
  [[nodiscard]] Usage at(int64_t first_layers, int64_t rest_layers) const;
  // Of both points `block`: what segments of so many layers take at least. All that they drop are inputs of
  // layers, of `input_bytes` each: those that wait, but for the first one of each segment, and of inputs that
  // wait elsewhere the copies that come and go. The seconds are those of no segments.
  [[nodiscard]] Usage below_segments(int64_t layers, int64_t segment, int64_t input_bytes) const;

 private:
  std::vector<std::shared_ptr<const ProgramNeeds>> programs_;
  Variant variant_;
};

// The variant's programs at full depth, as they are.
Usage measure(KnownPrograms& programs, const Variant& variant);
// The same by measured depth, where the variant's layers repeat.
Usage estimate(KnownPrograms& programs, const Variant& variant);

}  // namespace plimsoll
