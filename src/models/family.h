// A family of models: what it reads of a config.json, and how its forward pass is built. One file per family;
// families.def lists them.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "models/builder.h"
#include "models/config_reader.h"
#include "models/spec.h"

namespace plimsoll {

struct FamilyRule {
  std::string_view model_type;
  std::string_view architecture;       // with a head for next tokens
  std::string_view scoring_name = {};  // with a head that scores, where `architecture` does not begin alike
  std::string_view embedding = "model.embed_tokens";  // the module of the table of token embeddings
  // Fills in sizes and what is computed; refuses keys that change the computation and are not honoured.
  void (*parse)(const ConfigReader&, ModelSpec&);
  // The program's inputs but `step`.
  void (*inputs)(ModelBuilder&);
  // Hidden states [T, H] after the last block; of generation over the builder's cache.
  TensorId (*hidden)(ModelBuilder&);
  TensorId (*final_norm)(ModelBuilder&, TensorId h);
  // Reads the first text, in models that read one before they write another: caches what the writing needs of
  // it.
  void (*encode)(ModelBuilder&) = nullptr;
  // The head that scores sequences: its module, and whether it has a bias.
  std::string_view score = "score";
  bool score_bias = false;
  // The input of that head, computed from the rows [B, H] that are scored, where it is not the output of
  // final_norm; and the prefix of the names of the model below it.
  TensorId (*score_input)(ModelBuilder&, TensorId h) = nullptr;
  std::string_view score_prefix = {};
  // True if it computes what sequences share once: its tokens meet in causal attention, or by a state, alone.
  bool shares_prefixes = false;
  // Builds the rows that an encoder's head for masked words reads, computed from hidden states [T, H]; the head's
  // module, whose weight is the table of embeddings, and the name of its bias.
  TensorId (*words_input)(ModelBuilder&, TensorId h) = nullptr;
  std::string_view words_module = {}, words_bias = {};
  // The end of the names of modules that transformers leaves in 16 or 32 bits when other weights have 4 bits
  // (_keep_in_fp32_modules).
  std::string_view unquantised = {};
  // Other architectures whose folders such a model is made of.
  std::array<std::string_view, 2> also_read = {};
};

#define FAMILY(name) extern const FamilyRule name##_family;
#include "models/families.def"
#undef FAMILY

// Throws UsageError, with the names of those that are supported, for a model_type that is not.
const FamilyRule& family_of(const ConfigReader& in);
const FamilyRule& family_of(const ModelSpec& spec);
// The refusal of a model by its name alone, as its makers write it, if that is of a family that is not supported
// ("openai-community/gpt2"): "model_type 'gpt2' is not supported ..."; "" for other names.
std::string refusal_of_name(std::string_view name);

// The module of the table of token embeddings.
std::string embedding_module(const ModelSpec& spec);

// FamilyRule::unquantised as a list: of one name, or of none.
std::vector<std::string> unquantised_modules(const ModelSpec& spec);

// The name of the same model with a head that scores sequences.
std::string scoring_architecture(const FamilyRule& family);

}  // namespace plimsoll
