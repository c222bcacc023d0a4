// Models of tokenizer.json: they turn a word into ids.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json.h"
#include "text/piece_table.h"
#include "text/tokenizer_file.h"

namespace plimsoll {

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of `word` (not empty, valid UTF-8).
  virtual void tokenize(std::string_view word, std::vector<int32_t>& out) const = 0;
  [[nodiscard]] virtual const PieceTable& vocab() const = 0;
  [[nodiscard]] virtual int64_t resident_bytes() const = 0;
};

// `byte_level`: the pre-tokeniser hands the model raw bytes. Throws UsageError naming what is not supported.
std::unique_ptr<Model> make_model(const TokenizerFile& file, bool byte_level, const std::string& where);

}  // namespace plimsoll
