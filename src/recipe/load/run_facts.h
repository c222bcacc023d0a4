// Facts of a run's recipe for reports: the model, the method, the data, in words.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll {

struct RecipeFacts {
  std::string model, data, method;  // "Qwen/Qwen2.5-0.5B", "facts/train.parquet", "lora, rank 16, bf16"
  std::optional<std::string> goal;  // save.best
  std::vector<std::pair<std::string, std::string>> settings;  // keys and their values as YAML
};

// Nothing for a recipe that this version does not take any more.
std::optional<RecipeFacts> recipe_facts(const std::filesystem::path& file);

}  // namespace plimsoll
