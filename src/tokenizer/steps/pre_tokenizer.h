// Pre-tokenisers of tokenizer.json: they cut a normalised piece into the words the model sees.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/files/json_part.h"
#include "unicode/scanners.h"

namespace plimsoll {

// Words as views of the text, or of `owned` where a stage had to add a character. A long text has millions: they
// are passed on and forgotten as soon as there are kTogether.
struct Words {
  static constexpr size_t kTogether = 4096;

  std::vector<std::string_view> views = {};
  std::list<std::string> owned = {};
  // The start of the input, if this text begins there: Metaspace's "first" asks for it. Else null.
  const char* input_start = nullptr;
  std::function<void()> pass_on =
      {};  // leaves none, and of `owned` the newest, of which a stage may still make words

  void add(std::string_view word) {
    views.push_back(word);
    pass_on_if_many();
  }
  void pass_on_if_many() {
    if (views.size() >= kTogether) pass_on();
  }
};
// Adds the pieces that a known expression makes of a word.
void add_scanned(KnownRegex regex, std::string_view word, Words& out);
using TakeWords = std::function<void(std::span<const std::string_view>)>;

// One stage: adds the parts of `word` (not empty, valid UTF-8) to `out`; empty parts are left out.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void split(std::string_view word, Words& out) const = 0;
  [[nodiscard]] virtual int64_t resident_bytes() const { return 0; }
};

// The stages in order, Sequences unfolded.
struct PreTokenizerChain {
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  // The last stage is ByteLevel: the model sees bytes. They stay raw here; BPE's tables know the printable
  // alphabet that the reference writes them in, for other models `spell_bytes` writes it.
  bool byte_level = false;
  // A stage puts characters of its own into words.
  bool adds = false;

  void spell_bytes();

  // Hands the words of `text` to `take`, in order, some thousands at a time. `input_start` as in Words.
  void split(std::string_view text, const char* input_start, const TakeWords& take) const;
  [[nodiscard]] int64_t resident_bytes() const;
};

// Throws UsageError naming what is not supported.
PreTokenizerChain make_pre_tokenizer(const JsonPart& json);

// The families, by "type"; null for a type of another family. Each in its own file.
std::unique_ptr<PreTokenizer> make_split(const JsonPart& json, std::string_view type);
std::unique_ptr<PreTokenizer> make_class_split(const JsonPart& json, std::string_view type);
std::unique_ptr<PreTokenizer> make_metaspace(const JsonPart& json, std::string_view type);

}  // namespace plimsoll
