// Quantised bases (QLoRA): frozen weights of the layers are kept in 4 bits (NF4) or in 8 (int8), and
// dequantised right before each product that reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace plimsoll {

enum class WeightFormat : uint8_t { nf4, int8 };
// "nf4", "int8": in names of components and keys.
const char* to_string(WeightFormat format);
// The bits of a weight: 4, 8.
int bits_of(WeightFormat format);

struct QuantiseOptions {
  bool nested =
      true;  // nf4: the scales of the blocks in 8 bits (double quantisation): 0.37 bits a weight less
  // Modules whose weights keep their type, by the ends of their names: "wo", "layers.3.mlp.down_proj".
  std::vector<std::string> kept = {};
  WeightFormat format = WeightFormat::nf4;

  // True if all blocks of a stack keep the same modules.
  [[nodiscard]] bool blocks_are_alike() const;
};

// Replaces every frozen weight [out, in] of a linear op but the head's and those of `kept`, as bitsandbytes
// does, by the tensors of its format (ops/linear/nf4.h, ops/linear/int8.h): the codes keep the weight's name.
// Each linear op reads the output of a dequantising op of its own; passes/recompute makes that anew for the
// backward pass. Applied after LoRA and before autodiff. Throws UsageError for a weight with a number of inputs
// that the format does not hold.
Graph quantise(const Graph& graph, const QuantiseOptions& options);

}  // namespace plimsoll
