// Bytes and seconds of a variant at any depth, measured on its real programs at a depth of a few layers.
//
// Layers of a decoder repeat, so the bytes alive at an op and the seconds of a step are affine in the number
// of layers at each recompute point: one layer of each kind is taken for all of its kind. What is alive at
// the busiest op of the last layer of a kind is the most for that kind, since the backward pass takes layers
// from the last to the first. So the programs of 6 layers tell the lower bound of the arena for 80. The
// planner checks every plan that it chooses against the program of full depth (search.h).
#pragma once

#include <array>
#include <vector>

#include "plan/experiment.h"

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

// The real programs, as they are.
Usage measure(const std::vector<Graph>& programs, const Variant& variant, const DeviceRates& rates);

// The first layers of a model at point `first`, all others at `rest`.
class DepthModel {
 public:
  static constexpr int64_t kLayers = 6;  // of the measured programs: 3 at `first`, 3 at `rest`
  static constexpr int64_t kFirst = 3;
  static constexpr int64_t kFewest = 7;  // shallower models are measured as they are

  // `variant.recompute` is ignored.
  DepthModel(const Experiment& experiment, const Variant& variant, RecomputePoint first, RecomputePoint rest,
             const DeviceDescription& device);

  // first_layers >= 3; rest_layers >= 3, or 0 where both points are the same.
  [[nodiscard]] Usage at(int64_t first_layers, int64_t rest_layers) const;

 private:
  // base + first * (layers at `first` beyond those measured) + rest * (likewise).
  struct Affine {
    int64_t base = 0, first = 0, rest = 0;
  };
  struct Seconds {
    double base = 0, first = 0, rest = 0;
    [[nodiscard]] double at(double more_first, double more_rest) const {
      return base + first * more_first + rest * more_rest;
    }
  };
  struct Work {
    Seconds compute, io;
    double times = 0;  // of the program in a step
  };
  static int64_t value(const Affine& a, int64_t more_first, int64_t more_rest) {
    return a.base + a.first * more_first + a.rest * more_rest;
  }
  void add_program(const Graph& graph, double times, const DeviceRates& rates);
  void add_lives(const Graph& graph);

  std::array<Affine, 3> persistent_{};              // by space
  std::array<std::vector<Affine>, 3> transient_{};  // by space: the largest counts
  Affine ops_, tensors_;
  std::vector<Work> work_;
};

}  // namespace plimsoll
