#include "recipe/model_files.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/model_json.h"
#include "recipe/known_model.h"

namespace plimsoll {

namespace fs = std::filesystem;

ModelFiles::Config& ModelFiles::read(const fs::path& folder) {
  const auto known = configs_.find(folder);
  if (known != configs_.end()) return known->second;
  auto json = std::make_shared<const nlohmann::json>(read_model_json(folder / "config.json"));
  return configs_.emplace(folder, Config{std::move(json)}).first->second;
}

const nlohmann::json& ModelFiles::config(const fs::path& folder) { return *read(folder).json; }

const ModelSpec& ModelFiles::spec(const fs::path& folder) {
  Config& config = read(folder);
  if (!config.spec) config.spec = parse_model_spec(*config.json, shown_config(folder));
  return *config.spec;
}

void ModelFiles::hold(const fs::path& folder, nlohmann::json config) {
  configs_.insert_or_assign(folder, Config{std::make_shared<const nlohmann::json>(std::move(config))});
  held_.insert(folder);
}

std::shared_ptr<const Tokenizer> ModelFiles::tokenizer(const fs::path& folder) {
  const auto known = words_.find(folder);
  if (known != words_.end()) return known->second.tokenizer;
  const auto file = Tokenizer::find_file(folder);
  if (!file) return nullptr;
  auto tokenizer = std::make_shared<const Tokenizer>(Tokenizer::from_file(*file));
  return words_.emplace(folder, Words{std::move(tokenizer), std::nullopt}).first->second.tokenizer;
}

const SpecialTokens& ModelFiles::special_tokens(const fs::path& folder) {
  const auto words = tokenizer(folder);
  check_internal(words != nullptr, "special tokens without a tokenizer");
  std::optional<SpecialTokens>& special = words_.at(folder).special;
  if (!special) special = read_special_tokens(folder, *words, texts_, &config(folder));
  return *special;
}

}  // namespace plimsoll
