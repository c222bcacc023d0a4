// tokenizer.json as read: its big tables apart, the rest as JSON.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/files/json_part.h"
#include "tokenizer/files/piece_table.h"

namespace plimsoll {

struct TokenizerFile {
  std::string name;            // for errors
  nlohmann::json head;         // everything but the tables below
  std::vector<PieceId> vocab;  // model.vocab; of a list the ids are the positions
  std::vector<double> scores;  // of the pieces, where model.vocab is a list
  bool vocab_is_list = false;
  std::vector<std::pair<std::string, std::string>> merges;

  [[nodiscard]] JsonPart root() const { return {head, name}; }
  [[nodiscard]] JsonPart model() const { return root().at("model"); }
  // model.type, or what old files without it must mean.
  [[nodiscard]] std::string model_type() const;
};

// Throws DamagedError, naming `where`, for text that is not JSON or not shaped like a tokenizer.json.
TokenizerFile read_tokenizer_file(std::string_view text, const std::string& where);

}  // namespace plimsoll
