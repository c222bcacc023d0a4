// The folders that make up a model, and what they say of it.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "passes/quantise.h"
#include "tensor/tensor.h"
#include "text/tokenizer.h"

namespace plimsoll {

struct ModelPaths {
  std::filesystem::path base;
  std::optional<std::filesystem::path> adapter;
};
// A folder with adapter_config.json names its base model there, relative to the working directory or to the
// folder. Throws UsageError where there is none.
ModelPaths find_model(const std::filesystem::path& folder,
                      const std::optional<std::filesystem::path>& adapter);

// Element type of the folder's weights as config.json gives it: bf16, or f32 for all others.
DType stored_type(const std::filesystem::path& base);

// How the base model's layers are quantised: as they are stored, or as the run that made the adapter did, so
// that it answers with the weights that it was trained with; nothing for plain weights.
std::optional<QuantiseOptions> quantisation_of(const ModelPaths& paths);

// The ids that end an answer. Without a tokenizer: eos_token_id of generation_config.json, else of
// config.json.
std::vector<int32_t> stop_ids(const std::filesystem::path& base, const Tokenizer* tokenizer);

}  // namespace plimsoll
