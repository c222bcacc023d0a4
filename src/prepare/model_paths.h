// The folders that make up a model, and what their files state about it.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "models/spec.h"
#include "passes/quantise.h"
#include "recipe/model_files.h"
#include "tensor/tensor.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {

struct ModelPaths {
  std::filesystem::path base;
  std::optional<std::filesystem::path> adapter;
};
// The base model that adapter_config.json names: relative to the working directory or to the folder, or a
// name of the hub, of the version that was trained on where the cache has it. Nothing where it is missing.
std::optional<std::filesystem::path> base_of_adapter(const std::filesystem::path& adapter);
// A model, or an adapter's folder with the base model that it names; either may be a name of the hub. Throws
// UsageError where there is none.
ModelPaths find_model(const std::filesystem::path& folder,
                      const std::optional<std::filesystem::path>& adapter);

// The model of config.json, and whether its weights, where they are there, lack what a new head needs with
// it.
ModelSpec read_model(const ModelPaths& paths, ModelFiles& files);

// Element type of the folder's weights as config.json gives it: bf16, or f32 for all others.
DType stored_type(const std::filesystem::path& base);

// The element type to compute in: that of the run that made the adapter or the model, else the stored one.
DType trained_type(const ModelPaths& paths);

// The quantisation of the base model's layers: as they are stored, or as in the run that made the adapter, so
// that it answers with the weights that it was trained with; nothing for plain weights.
std::optional<QuantiseOptions> quantisation_of(const ModelPaths& paths);

// The ids that end an answer. Without a tokenizer: eos_token_id of generation_config.json, else of
// config.json.
std::vector<int32_t> stop_ids(const std::filesystem::path& base, const Tokenizer* tokenizer);

}  // namespace plimsoll
