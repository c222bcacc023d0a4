// tokenizer.json as read: its two big tables apart, the rest as JSON.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/json.h"
#include "text/piece_table.h"

namespace plimsoll {

struct TokenizerFile {
  Json head;                   // everything but the two tables below
  std::vector<PieceId> vocab;  // model.vocab, where it is an object
  std::vector<std::pair<std::string, std::string>> merges;

  // model.type, or what old files without it must mean.
  [[nodiscard]] std::string model_type() const;
};

// Throws DamagedError, naming `where`, for text that is not JSON or not shaped like a tokenizer.json.
TokenizerFile read_tokenizer_file(std::string_view text, const std::string& where);

}  // namespace plimsoll
