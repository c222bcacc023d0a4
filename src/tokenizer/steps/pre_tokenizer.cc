#include "tokenizer/steps/pre_tokenizer.h"

#include "tokenizer/models/byte_level.h"

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
      add_scanned(KnownRegex::gpt2, word, out);
    else
      out.add(word);
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
    out.add(out.owned.back());
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

void add_scanned(KnownRegex regex, std::string_view word, Words& out) {
  while (!word.empty()) {
    word.remove_prefix(scan(regex, word, out.views, Words::kTogether));
    out.pass_on_if_many();
  }
}

void PreTokenizerChain::spell_bytes() { stages.push_back(std::make_unique<SpelledBytes>()); }

// The words of a stage are split by the next one, and all words of that are passed on, before they are forgotten: words may be
// views of those that they were made of.
void PreTokenizerChain::split(std::string_view text, const char* input_start, const TakeWords& take) const {
  if (stages.empty()) return take(std::span(&text, 1));
  std::vector<Words> made(stages.size());
  for (size_t i = 0; i < stages.size(); ++i) {
    made[i].input_start = input_start;
    made[i].pass_on = [&, i] {
      Words& words = made[i];
      if (i + 1 == stages.size()) {
        take(words.views);
      } else {
        for (const std::string_view word : words.views) stages[i + 1]->split(word, made[i + 1]);
        made[i + 1].pass_on();
      }
      words.views.clear();
      while (words.owned.size() > 1) words.owned.pop_front();
    };
  }
  stages.front()->split(text, made.front());
  made.front().pass_on();
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
