// A cache of micro-steps before offloading, for searches that ask for them again: the backward pass is the
// same for all points of recomputation, and recomputation is the same wherever its tensors are offloaded to.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "passes/pipeline.h"
#include "plan/program/experiment.h"

namespace plimsoll {

// The micro-step from the model's forward pass to the pass `last`, at most `recompute`.
Graph build_micro_step(const Experiment& experiment, const Variant& variant, PassId last,
                       const AfterPass& after = {});

// As build_programs(), of a micro-step that went as far as `recompute`.
std::vector<Graph> finish_programs(const Experiment& experiment, const Variant& variant,
                                   const DeviceDescription& device, Graph train, Programs which,
                                   const AfterPass& after = {});

class TrainGraphs {
 public:
  // The micro-step of the variant with its recomputation, of experiments that differ in their depth alone.
  // Only those of the latest shape of a micro-step stay: the search goes from one pair to the next, and deep
  // ones are large. Valid until the next call.
  const Graph& of(const Experiment& experiment, const Variant& variant);
  // The same before any recomputation.
  const Graph& keeping(const Experiment& experiment, const Variant& variant);

 private:
  struct OfDepth {
    std::optional<Graph> keeping;
    std::map<std::vector<int64_t>, Graph> recomputing;  // by points and segment
  };
  std::array<int64_t, 3> shape_{};  // rows and tokens of a micro-step, and of logits at a time
  std::map<std::vector<int64_t>, OfDepth> by_depth_;  // of each stack
};

}  // namespace plimsoll
