// Reads the rotary position embedding of a config.json.
#pragma once

#include "models/config_reader.h"
#include "models/spec.h"

namespace plimsoll {

struct RopeFacts {
  double theta = 10000.0;  // where none is stated
  // Phi-3's ways: a part of a head may turn; `yarn` is longrope under an older name; the original length is the one
  // next to the settings, by default this.
  bool may_turn_parts = false;
  double turned_part = 1.0;  // where none is stated
  int64_t longrope_original = 0;
};
// Sets spec.rope and spec.rotary_dim; reads head_dim and max_positions, which must be set. Throws UsageError.
void read_rope(const ConfigReader& in, const RopeFacts& facts, ModelSpec& spec);

// The key that has the settings of RoPE: `rope_scaling` (before transformers 5) where it has some, else
// `rope_parameters`, which may be missing.
const char* rope_key(const ConfigReader& in);

// Bases of layers of full attention and of sliding ones, where none is stated.
struct ThetasByLayer {
  double full = 10000.0, sliding = 10000.0;
  const char* sliding_key = nullptr;  // next to the other, which is then that of full layers alone
  const char* full_key = "rope_theta";
};
// Sets spec.rope and, where sliding layers have another, other_ropes and rope_of_layer: from `rope_parameters` with
// settings for each kind of layer, or from the older keys, whose `rope_scaling` is that of full layers.
void read_ropes_by_layer(const ConfigReader& in, const ThetasByLayer& thetas,
                         const std::vector<bool>& sliding, ModelSpec& spec);

}  // namespace plimsoll
