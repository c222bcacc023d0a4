// Adds one weight's update, by the optimizer that the options name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/graph.h"
#include "ops/optimizer_kind.h"

namespace plimsoll {

struct TrainPrecision;

// A choice of what the ranks of a run divide among themselves instead of holding it each: nothing; a piece of every
// weight's states, which a rank updates (ZeRO stage 1); its piece of the gradients too (stage 2); and of the weights of
// the layers (stage 3).
enum class ShardStage : uint8_t { automatic, none, states, gradients, weights };

// As recipes have it: "states".
std::string_view to_string(ShardStage stage);

struct OptimizerOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.0;   // of weights that decay
  double max_grad_norm = 1.0;  // 0: no clipping
  OptimizerKind kind = OptimizerKind::adamw;
  double momentum = 0.0;                // of SGD
  ShardStage shard = ShardStage::none;  // what several ranks divide
  double adapter_out_ratio = 1.0;       // LoRA+: times the learning rate of what an adapter ends with
};

// Below this many elements a weight's states stay in 32 bits under adamw8bit, as bitsandbytes has it
// (min_8bit_size); so do those of embeddings, whose rare tokens' gradients are far from their blocks'
// largest.
inline constexpr int64_t kMinElements8bit = 4096;

// A run's ranks, and the parts of it that they divide among themselves.
struct Sharding {
  int64_t ranks = 1;
  ShardStage stage = ShardStage::none;
  bool beside_adapters = false;  // what trains is saved as its master is, which stays whole

  [[nodiscard]] bool states() const { return stage >= ShardStage::states; }
  [[nodiscard]] bool gradients() const { return stage >= ShardStage::gradients; }
  [[nodiscard]] bool weights() const { return stage >= ShardStage::weights; }

  friend bool operator==(const Sharding&, const Sharding&) = default;
};

// A rank's piece of a tensor, of so many elements.
Tensor rank_piece(const Tensor& tensor, int64_t elements);
// A rank's part of a weight: a piece where the ranks divide weights, and it is a matrix of a layer that is not too
// small to be cut; else all of it. Tables of words, heads, vectors, adapters and what is saved with them stay whole.
Tensor divided_weight(const Tensor& weight, const Sharding& sharding);

// Appends the update of `weight` (all of it, or a rank's piece), its gradient and (unless kNoTensor) the norm that
// clips it given: its tensor, its states and its master copy are added to `update`: where ranks divide states, a
// rank's pieces of them.
void add_update(Graph& update, const Tensor& weight, TensorId gradient, TensorId norm,
                const TrainPrecision& precision, const OptimizerOptions& options,
                const Sharding& sharding = {});

}  // namespace plimsoll
