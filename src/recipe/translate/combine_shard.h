// Translates how DeepSpeed, FSDP and accelerate divide a run among devices and offload it: memory.shard and
// memory.tier.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "recipe/translate/layer.h"

namespace plimsoll {

// Stages are ZeRO's: 0 nothing, 1 optimizer states, 2 gradients as well, 3 weights as well.
struct Division {
  std::optional<int64_t> stage;  // nothing where the file leaves it open
  bool states = false;           // the optimizer leaves the device
  bool weights = false;          // the weights do
};

// The keys of DeepSpeed in force. `is_new` if this layer has one of them.
std::vector<const Said*> keys_of_deepspeed(const Layer& layer);
// Reads them; nothing after a refusal.
std::optional<Division> read_deepspeed_division(Layer& layer, const std::vector<const Said*>& from);

// The same of FSDP, by its own keys, by torchtune's or by accelerate's file.
std::vector<const Said*> keys_of_fsdp(const Layer& layer);
std::optional<Division> read_fsdp_division(Layer& layer, const std::vector<const Said*>& from);

}  // namespace plimsoll
