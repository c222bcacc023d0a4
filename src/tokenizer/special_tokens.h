// The special tokens a model folder names: where text begins and ends, and what pads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file_texts.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {

struct SpecialTokens {
  std::optional<int32_t> bos;
  std::optional<int32_t> pad;
  std::optional<int32_t> mask;  // that words are hidden behind; where no file names it, [MASK] or <mask>
  // Ends a text in training: eos_token of tokenizer_config.json, else of special_tokens_map.json, else the
  // first of `eos`.
  std::optional<int32_t> end_of_text;
  // Any of them ends generation: eos_token_id of generation_config.json, else of config.json, else
  // end_of_text.
  std::vector<int32_t> eos;
};

// Reads what is there of tokenizer_config.json, special_tokens_map.json, generation_config.json and
// config.json in `folder`; a missing file is skipped. Throws DamagedError for an unreadable one or a token
// that `tokenizer` lacks. `config`: config.json, where it is read already.
SpecialTokens read_special_tokens(const std::filesystem::path& folder, const Tokenizer& tokenizer,
                                  FileTexts& texts, const nlohmann::json* config = nullptr);
SpecialTokens read_special_tokens(const std::filesystem::path& folder, const Tokenizer& tokenizer);

}  // namespace plimsoll
