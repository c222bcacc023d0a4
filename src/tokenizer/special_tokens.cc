#include "tokenizer/special_tokens.h"

#include "base/format.h"
#include "base/json_text.h"
#include "base/units.h"
#include "tokenizer/files/json_part.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestConfig = 32 * kMiB;  // tokenizer_config.json may list every added token

// A JSON object with its file name, empty where there is no such file.
struct Config {
  std::string name;
  nlohmann::json json = nlohmann::json::object();

  Config(std::string file, nlohmann::json values) : name(std::move(file)), json(std::move(values)) {}
  Config(const fs::path& file, FileTexts& texts) : name(file.string()) {
    std::error_code unknown;
    if (fs::status(file, unknown).type() == fs::file_type::not_found) return;
    json = read_json_text<nlohmann::json>(texts.read(file, kLargestConfig));
    if (!json.is_object()) throw DamagedError(name + ": not a JSON object");
  }

  [[noreturn]] void damaged(const std::string& key, const std::string& what) const {
    throw DamagedError(formatted("{}: {} {}", name, key, what));
  }
  [[nodiscard]] const nlohmann::json* find(const std::string& key) const {
    if (const auto it = json.find(key); it != json.end() && !it->is_null()) return &*it;
    // A model of images and text has its text model's tokens within.
    const auto text = json.find("text_config");
    if (text == json.end() || !text->is_object()) return nullptr;
    const auto it = text->find(key);
    return it == text->end() || it->is_null() ? nullptr : &*it;
  }
};

// A token by name: "eos_token": "</s>" or {"content": "</s>", ...}.
std::optional<int32_t> token_by_name(const Config& config, const std::string& key,
                                     const Tokenizer& tokenizer) {
  const nlohmann::json* value = config.find(key);
  if (value == nullptr) return std::nullopt;
  const nlohmann::json* content =
      value->is_object() && value->contains("content") ? &value->at("content") : value;
  if (!content->is_string()) config.damaged(key, "is no token");
  const auto name = content->get<std::string>();
  const auto id = tokenizer.token_id(name);
  if (!id) config.damaged(key, formatted("\"{}\" is not in the tokenizer", name));
  return id;
}

// Ids: "eos_token_id": 2 or [2, 7].
std::vector<int32_t> token_ids(const Config& config, const std::string& key) {
  const nlohmann::json* value = config.find(key);
  if (value == nullptr) return {};
  const auto id_of = [&](const nlohmann::json& id) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) config.damaged(key, "is no id: " + id.dump());
    return id.get<int32_t>();
  };
  if (!value->is_array()) return {id_of(*value)};
  std::vector<int32_t> ids;
  for (const nlohmann::json& id : *value) ids.push_back(id_of(id));
  return ids;
}

std::optional<int32_t> first(const std::vector<int32_t>& ids) {
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

}  // namespace

SpecialTokens read_special_tokens(const fs::path& folder, const Tokenizer& tokenizer, FileTexts& texts,
                                  const nlohmann::json* config) {
  const Config by_name[] = {Config(folder / "tokenizer_config.json", texts),
                            Config(folder / "special_tokens_map.json", texts)};
  const fs::path model = folder / "config.json";
  const Config by_id[] = {Config(folder / "generation_config.json", texts),
                          config != nullptr ? Config(model.string(), *config) : Config(model, texts)};
  // The first file that has the token.
  const auto named = [&](const std::string& key) {
    std::optional<int32_t> id;
    for (const Config& config : by_name)
      if (!id) id = token_by_name(config, key, tokenizer);
    return id;
  };
  const auto numbered = [&](const std::string& key) {
    std::vector<int32_t> ids;
    for (const Config& config : by_id)
      if (ids.empty()) ids = token_ids(config, key);
    return ids;
  };
  const auto named_or_numbered = [&](const std::string& token) {
    const auto id = named(token);
    return id ? id : first(numbered(token + "_id"));
  };
  SpecialTokens tokens{.bos = named_or_numbered("bos_token"),
                       .pad = named_or_numbered("pad_token"),
                       .mask = named("mask_token"),
                       .end_of_text = named_or_numbered("eos_token"),
                       .eos = numbered("eos_token_id")};
  if (tokens.eos.empty() && tokens.end_of_text) tokens.eos = {*tokens.end_of_text};
  for (const char* usual : {"[MASK]", "<mask>"})
    if (!tokens.mask) tokens.mask = tokenizer.token_id(usual);
  return tokens;
}

SpecialTokens read_special_tokens(const fs::path& folder, const Tokenizer& tokenizer) {
  FileTexts texts;
  return read_special_tokens(folder, tokenizer, texts);
}

}  // namespace plimsoll
