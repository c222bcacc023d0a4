// What the recipe of a run says for people: for reports of runs.
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
