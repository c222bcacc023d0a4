// The rules by which vLLM serves an adapter over its base model.
#pragma once

#include <filesystem>
#include <string>

#include "models/spec.h"
#include "passes/adapter_rules.h"

namespace plimsoll {

// Throws UsageError for a model whose architecture vLLM does not have: T5 and gated linear attention.
void require_family_of_vllm(const std::filesystem::path& folder, const ModelSpec& model);

// Throws UsageError, with the command that merges instead, for an adapter that vLLM refuses or would serve as
// another one.
void require_served_by_vllm(const std::filesystem::path& adapter, const LoraOptions& lora);

// The value of --max-lora-rank: the least that vLLM takes for the adapter's rank.
int64_t vllm_rank(const LoraOptions& lora);

}  // namespace plimsoll
