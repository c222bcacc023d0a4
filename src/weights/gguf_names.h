// The names that llama.cpp gives architectures and their tensors, and the form in which it has their numbers.
#pragma once

#include <filesystem>
#include <string>

#include "formats/gguf_checkpoint.h"
#include "formats/model_folder.h"
#include "models/spec.h"

namespace plimsoll {

// Llama, Mistral and Ministral are one architecture there, OLMo 2 and 3 another.
std::string gguf_architecture(const ModelSpec& model);

// "model.layers.3.self_attn.q_proj.weight" as "blk.3.attn_q.weight"; empty for what GGUF has no name for.
std::string gguf_name(const ModelSpec& model, const std::string& name);

// The block of a GGUF's tensor: 3 of "blk.3.attn_q.weight"; -1 where it is of none.
int64_t gguf_layer(const std::string& gguf_name);

// `name` as the checkpoint has it.
GgufForm gguf_form(const ModelSpec& model, const std::string& name);

// A model's weights: safetensors, or where the folder has none model.gguf. Throws as ModelFolder::open and
// GgufCheckpoint do.
ModelFolder open_weights(const std::filesystem::path& folder);

}  // namespace plimsoll
