// Adds low-rank adapters to chosen linear layers: y += scale * B (A dropout(x)); with DoRA rows of the sum
// have lengths of their own (ops/linear/dora.cc). An embedding (passes/embedding_adapter.h) and the output
// head, whose product is added where the loss makes the logits, get adapters where they are named.
#pragma once

#include "graph/graph.h"
#include "passes/adapter_rules.h"

namespace plimsoll {

// Replaces each targeted linear op; adapters `<module>.lora_A.weight` [r, in] and `<module>.lora_B.weight`
// [out, r], and with DoRA `<module>.lora_magnitude_vector` [out] in f32, are born trainable, in the layer's
// type. Modules that modules_to_save names are trained whole; a head tied to the embedding becomes
// `lm_head.weight` where one of the two is named. Throws UsageError for a target that names neither linear
// layer nor embedding.
//
// `part`: a program of a part of the model (an encoder's alone), which may lack modules that are named.
Graph add_lora(const Graph& graph, const LoraOptions& options, bool part = false);

// The ends of the names of f32 tensors that are kept with adapters which begin with a part of the weight, and
// hold that part.
inline constexpr const char* kStartOfA = ".lora_A.start";
inline constexpr const char* kStartOfB = ".lora_B.start";

}  // namespace plimsoll
