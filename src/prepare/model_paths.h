// The folders that make up a model, and what their files state about it.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "models/spec.h"
#include "passes/quantise.h"
#include "recipe/load/load.h"
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

// The recipe that the run saved in its folder; nothing where no run wrote the folder.
std::optional<Recipe> recipe_of_run(const std::filesystem::path& folder, const SharedSources& sources);

// The model of config.json, and whether its weights, where they are there, lack what a new head needs with
// it.
ModelSpec read_model(const ModelPaths& paths, ModelFiles& files);

// The element type to compute in: that of the run that made the adapter or the model, else the one of the
// weights by config.json: bf16, or f32 for all others.
DType trained_type(const ModelPaths& paths, const SharedSources& sources);

// That of a recipe with qlora, for a folder that stores none; without method.unquantised.
QuantiseOptions quantisation_of(const Recipe& recipe);
// The quantisation of the base model's layers: as they are stored, or as in the run that made the adapter, so
// that it answers with the weights that it was trained with; nothing for plain weights.
std::optional<QuantiseOptions> quantisation_of(const ModelPaths& paths, const SharedSources& sources);

// The ids that end an answer: those of the tokenizer, or without one eos_token_id of generation_config.json, else of
// config.json.
std::vector<int32_t> stop_ids(const std::filesystem::path& base, bool has_tokenizer, ModelFiles& files);

}  // namespace plimsoll
