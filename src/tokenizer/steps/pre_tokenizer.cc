#include "tokenizer/steps/pre_tokenizer.h"

#include "tokenizer/models/byte_level.h"
#include "unicode/scanners.h"

namespace plimsoll {
namespace {

// The work of ByteLevel other than turning text into bytes.
class ByteLevelSplit final : public PreTokenizer {
 public:
  ByteLevelSplit(bool add_prefix_space, bool use_regex)
      : add_prefix_space_(add_prefix_space), use_regex_(use_regex) {}

  void split(std::string_view word, Words& out) const override {
    if (add_prefix_space_ && !word.starts_with(' ')) word = out.owned.emplace_back(" " + std::string(word));
    if (use_regex_)
      scan(KnownRegex::gpt2, word, out.views);
    else
      out.views.push_back(word);
  }

 private:
  bool add_prefix_space_;
  bool use_regex_;
};

// Bytes in their printable alphabet.
class SpelledBytes final : public PreTokenizer {
 public:
  void split(std::string_view word, Words& out) const override {
    append_byte_level(word, out.owned.emplace_back());
    out.views.emplace_back(out.owned.back());
  }
};

void append_stages(const JsonPart& json, PreTokenizerChain& chain) {
  const std::string& type = json.at("type").text();
  if (type == "Sequence") {
    for (const JsonPart& stage : json.at("pretokenizers").items()) append_stages(stage, chain);
    return;
  }
  if (chain.byte_level)
    json.refuse("pre-tokenizer", type + " after ByteLevel", "ByteLevel as the last of a Sequence");
  if (type == "ByteLevel") {
    chain.byte_level = true;
    const bool add_prefix_space = json.at("add_prefix_space").flag();
    const bool use_regex = json.flag_or("use_regex", true);
    chain.adds |= add_prefix_space;
    if (add_prefix_space || use_regex)
      chain.stages.push_back(std::make_unique<ByteLevelSplit>(add_prefix_space, use_regex));
    return;
  }
  for (const auto make : {make_split, make_class_split, make_metaspace})
    if (auto stage = make(json, type)) {
      chain.stages.push_back(std::move(stage));
      chain.adds |= type == "Metaspace";
      return;
    }
  json.refuse("pre-tokenizer", type,
              "Sequence, ByteLevel, Metaspace, Split, Whitespace, WhitespaceSplit, BertPreTokenizer, Digits, "
              "Punctuation, CharDelimiterSplit, null");
}

}  // namespace

void PreTokenizerChain::spell_bytes() { stages.push_back(std::make_unique<SpelledBytes>()); }

void PreTokenizerChain::split(Words& words, std::vector<std::string_view>& spare) const {
  for (const auto& stage : stages) {
    spare.swap(words.views);
    words.views.clear();
    for (const std::string_view word : spare) stage->split(word, words);
  }
}

int64_t PreTokenizerChain::resident_bytes() const {
  int64_t bytes = 0;
  for (const auto& stage : stages) bytes += stage->resident_bytes();
  return bytes;
}

PreTokenizerChain make_pre_tokenizer(const JsonPart& json) {
  PreTokenizerChain chain;
  if (!json.is_null()) append_stages(json, chain);
  return chain;
}

}  // namespace plimsoll
