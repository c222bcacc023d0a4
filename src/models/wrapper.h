// Models that read images around a text model: config.json has that model's keys in `text_config`, and the folder holds
// further tensors, of towers and projectors. The text model alone is trained; the others are copied.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/config_reader.h"
#include "models/spec.h"

namespace plimsoll {

struct WrapperRule {
  std::string_view model_type;
  std::string_view architecture;
  // Types of the text model; the first where text_config names none.
  std::vector<std::string_view> texts;
  bool scores = false;             // transformers has a class of it with a head that scores
  bool ignores_logit_cap = false;  // of the text model's config, as transformers' class does
  // Ends of the names of tensors that are no text: some of the whole, and some of each layer of the tower.
  std::vector<std::string_view> parts, layer_parts;
  const char* layers_key = "num_hidden_layers";  // in vision_config: how many the tower has
  std::string_view layers = ".layers.";          // before the number of such a layer
};

// By model_type; null: no wrapper that is known.
const WrapperRule* find_wrapper(std::string_view model_type);
// Every one that is known, for messages.
std::vector<std::string> wrapper_types();

// The text model's config as a model of its own would have it: with what the outer class decides. Throws UsageError
// where text_config is missing or of a family that the wrapper does not have.
nlohmann::json text_config(const ConfigReader& outer, const WrapperRule& wrapper);

// The module of the text model within a wrapper, as transformers has it in memory.
inline constexpr std::string_view kTextModule = "model.language_model";
// PEFT's exclude_modules of adapters of the text model: modules of the same names in towers get none.
inline constexpr const char* kNoTextModules = ".*(vision_tower|multi_modal_projector|visual|mtp).*";

// Throws UsageError if names, those of all tensors of a folder of the model_type `wrapper`, lack the text model's, or one of its tower's.
void require_whole(const std::string& wrapper, const nlohmann::json& config,
                   std::span<const std::string> names, const std::string& where);

}  // namespace plimsoll
