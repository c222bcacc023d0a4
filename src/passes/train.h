// Turns a forward graph into the programs of training: the trained weights, their gradients, and the
// optimizer's update.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/description.h"
#include "graph/graph.h"
#include "passes/lora.h"
#include "passes/optimizers.h"

namespace plimsoll {

// Element types of training. `compute` is that of weights and activations.
struct TrainPrecision {
  DType compute = DType::f32;
  DType gradients = DType::f32;
  DType states = DType::f32;
  bool master = false;      // an f32 copy of each trainable weight, rounded to nearest after every update
  bool stochastic = false;  // bf16 weights without master copy, and bf16 states, are rounded stochastically
  bool tf32 = false;        // products of f32 are cut to TF32

  // Gradients that pass through f16 would vanish, and may overflow.
  [[nodiscard]] bool scales_loss() const { return compute == DType::f16; }
};

inline constexpr const char* kGradNormTensor = "grad_norm";
// A weight's name and this: the sum of its gradient's squares, f64 [1].
inline constexpr const char* kGradSquareSuffix = ".grad_square";

// The precision in which adapters train: f32 masters, gradients and states whatever the model's precision is.
TrainPrecision adapter_precision(const TrainPrecision& model);

// Every weight trains but those that `frozen` names: regular expressions for whole parts of their names
// ("encoder" is all below it). Throws UsageError for one that names nothing, and where nothing is left to
// train.
Graph make_trainable(Graph graph, const std::vector<std::string>& frozen = {});

// The optimizer's program over the trainable weights and gradients of `train`: squares, norm and
// clip factor, updates. Several ranks add up squares by their pieces, whatever else they divide. `train` has its
// gradients whole: where ranks divide them, reduce_gradients() cuts them as this does, and gather_weights() weights.
Graph build_update(const Graph& train, const TrainPrecision& precision, const OptimizerOptions& options,
                   const Sharding& sharding = {});

// Gives every op its workspace as a tensor, `scratch.<index>`.
Graph assign_scratch(Graph graph, const DeviceDescription& device);

}  // namespace plimsoll
