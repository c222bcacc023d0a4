// The pre-tokenisers that look at one character at a time: Whitespace, WhitespaceSplit, BertPreTokenizer,
// Digits, Punctuation, CharDelimiterSplit.
#include "tokenizer/steps/pre_tokenizer.h"
#include "tokenizer/steps/split.h"
#include "unicode/unicode_classes.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

// Words are runs of one kind; `kind(code)` gives it.
enum class Kind : uint8_t { gap, alone, run, other_run };

template <typename KindOf>
void split_by_kind(std::string_view word, Words& out, KindOf kind_of) {
  size_t begin = 0;
  Kind previous = Kind::gap;
  const auto close = [&](size_t end) {
    if (previous != Kind::gap && begin < end) out.add(word.substr(begin, end - begin));
    begin = end;
  };
  for (size_t i = 0; i < word.size();) {
    const Utf8Char c = decode_utf8(word.data() + i);
    const Kind kind = kind_of(c.code);
    if (kind != previous || kind == Kind::alone) close(i);
    previous = kind;
    i += c.bytes;
  }
  close(word.size());
}

template <typename KindOf>
class KindSplit final : public PreTokenizer {
 public:
  explicit KindSplit(KindOf kind_of) : kind_of_(kind_of) {}
  void split(std::string_view word, Words& out) const override { split_by_kind(word, out, kind_of_); }

 private:
  KindOf kind_of_;
};

template <typename KindOf>
std::unique_ptr<PreTokenizer> make_kind_split(KindOf kind_of) {
  return std::make_unique<KindSplit<KindOf>>(kind_of);
}

// Matches are single characters.
template <typename Matches>
class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(SplitBehavior behavior, Matches matches) : behavior_(behavior), matches_(matches) {}

  void split(std::string_view word, Words& out) const override {
    std::vector<Span> found;
    for (size_t i = 0; i < word.size();) {
      const Utf8Char c = decode_utf8(word.data() + i);
      if (matches_(c.code)) found.push_back({i, i + c.bytes, true});
      i += c.bytes;
    }
    if (found.empty())
      out.add(word);
    else
      apply_split(behavior_, word, fill_gaps(found, word.size()),
                  [&](std::string_view part) { out.add(part); });
  }

 private:
  SplitBehavior behavior_;
  Matches matches_;
};

template <typename Matches>
std::unique_ptr<PreTokenizer> make_character_split(SplitBehavior behavior, Matches matches) {
  return std::make_unique<CharacterSplit<Matches>>(behavior, matches);
}

}  // namespace

std::unique_ptr<PreTokenizer> make_class_split(const JsonPart& json, std::string_view type) {
  const auto has = [&table = text_classes()](char32_t code, unsigned flags) {
    return (table[code] & flags) != 0;
  };
  if (type == "Whitespace")
    return make_kind_split([has](char32_t c) {
      return has(c, kWordGap) ? Kind::gap : has(c, kWordCharacter) ? Kind::run : Kind::other_run;
    });
  if (type == "WhitespaceSplit")
    return make_kind_split([has](char32_t c) { return has(c, kWhite) ? Kind::gap : Kind::run; });
  if (type == "BertPreTokenizer")
    return make_kind_split([has](char32_t c) {
      return has(c, kWhite) ? Kind::gap : has(c, kBertPunctuation) ? Kind::alone : Kind::run;
    });
  if (type == "Digits")
    return make_character_split(
        json.flag_or("individual_digits", false) ? SplitBehavior::isolated : SplitBehavior::contiguous,
        [&table = unicode_classes()](char32_t c) { return (table[c] & kDigit) != 0; });
  if (type == "Punctuation") {
    const auto behavior = json.find("behavior");
    return make_character_split(behavior ? parse_split_behavior(*behavior) : SplitBehavior::isolated,
                                [has](char32_t c) { return has(c, kPunctuation); });
  }
  if (type == "CharDelimiterSplit")
    return make_character_split(SplitBehavior::removed,
                                [delimiter = decode_utf8(json.at("delimiter").character().data()).code](
                                    char32_t c) { return c == delimiter; });
  return nullptr;
}

}  // namespace plimsoll
