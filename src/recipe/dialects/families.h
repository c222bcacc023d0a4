// Recognises families of models that other tools' recipes name and Plimsoll lacks, by the name alone: their
// config.json is mostly not on this machine while a recipe is read.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace plimsoll {

// "gemma" of "google/gemma-2b" or of torchtune's builder "torchtune.models.gemma.gemma_2b"; nothing where the
// name holds no family, or one that exists.
std::optional<std::string> unsupported_family(std::string_view name);

}  // namespace plimsoll
