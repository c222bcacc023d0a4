// Reads and writes PEFT's adapter_config.json: an adapter's rank, scale and targets.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "passes/adapter_rules.h"

namespace plimsoll {

// The weight below an embedding's adapter, which PEFT saves in addition, as "<module>.base_layer.weight".
inline constexpr std::string_view kBaseLayer = ".base_layer.weight";

// Rank, scale and targets of a PEFT folder; dropout stays. `scores`: whether a head that scores sequences may
// be saved with it. Throws UsageError for what is not supported.
void read_adapter_config(const std::filesystem::path& folder, LoraOptions& lora, bool scores = false);

// The keys that follow from the options. `targets`: the names of what is adapted, where the options mean all
// of them. `heads`: modules of a head that scores sequences, which are saved too.
nlohmann::ordered_json adapter_config(const LoraOptions& lora, const std::vector<std::string>& targets,
                                      const std::vector<std::string>& heads);

}  // namespace plimsoll
