// The files of the models that the recipes of one command name. config.json, the tokenizer, its configuration
// and the chat template are read once, when they are first asked for, however often a recipe is planned under
// other assumptions.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>

#include "base/file_texts.h"
#include "models/spec.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {

class ModelFiles {
 public:
  // config.json, as it stands and as the model that it describes. Both throw as read_model_spec() does, the
  // first for what is no JSON alone.
  const nlohmann::json& config(const std::filesystem::path& folder);
  const ModelSpec& spec(const std::filesystem::path& folder);
  // Null where the folder has no file of a tokenizer.
  std::shared_ptr<const Tokenizer> tokenizer(const std::filesystem::path& folder);
  // Takes a config.json that is in no file, as if the folder held it and nothing else.
  void hold(const std::filesystem::path& folder, nlohmann::json config);
  [[nodiscard]] bool holds(const std::filesystem::path& folder) const { return held_.contains(folder); }
  // The folder must have a tokenizer.
  const SpecialTokens& special_tokens(const std::filesystem::path& folder);
  // The small files that name special tokens and hold chat templates.
  FileTexts& texts() { return texts_; }

 private:
  struct Config {
    std::shared_ptr<const nlohmann::json> json;
    std::optional<ModelSpec> spec = {};
  };
  struct Words {
    std::shared_ptr<const Tokenizer> tokenizer;
    std::optional<SpecialTokens> special;
  };
  Config& read(const std::filesystem::path& folder);

  std::map<std::filesystem::path, Config> configs_;
  std::set<std::filesystem::path> held_;
  std::map<std::filesystem::path, Words> words_;
  FileTexts texts_;
};

}  // namespace plimsoll
