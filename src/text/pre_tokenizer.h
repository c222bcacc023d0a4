// Pre-tokenisers of tokenizer.json: they cut a normalised piece into the words the model sees.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json.h"

namespace plimsoll {

// Words as views of the text, or of `owned` where a stage had to add a character (a deque never moves them).
struct Words {
  std::vector<std::string_view> views;
  std::deque<std::string> owned;
};

// One stage: appends the parts of `word` (not empty, valid UTF-8) to `out`; empty parts are left out.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void split(std::string_view word, Words& out) const = 0;
  [[nodiscard]] virtual int64_t resident_bytes() const { return 0; }
};

// The stages in order, Sequences unfolded.
struct PreTokenizerChain {
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  // The last stage is ByteLevel: the model sees bytes. They stay raw here; only the model's tables know the
  // printable alphabet that the reference writes them in.
  bool byte_level = false;

  // Replaces the words of `words` by the parts; `spare` is scratch.
  void split(Words& words, std::vector<std::string_view>& spare) const;
  [[nodiscard]] int64_t resident_bytes() const;
};

// Throws UsageError naming what is not supported.
PreTokenizerChain make_pre_tokenizer(const Json& json, const std::string& where);

}  // namespace plimsoll
