#include "text/pre_tokenizer.h"

#include <optional>
#include <utility>

#include "text/regex.h"
#include "text/scanners.h"
#include "text/split.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace plimsoll {
namespace {

// Split by a known expression: every byte belongs to a match, so "isolated" and "invert" change nothing.
class ScannerSplit final : public PreTokenizer {
 public:
  explicit ScannerSplit(KnownRegex regex) : regex_(regex) {}
  void split(std::string_view word, Words& out) const override { scan(regex_, word, out.views); }

 private:
  KnownRegex regex_;
};

// Split by any other expression or behaviour.
class RegexSplit final : public PreTokenizer {
 public:
  RegexSplit(Regex regex, SplitBehavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

  void split(std::string_view word, Words& out) const override {
    std::vector<Span> matches;
    regex_.for_each_match(word, [&](size_t begin, size_t end) { matches.push_back({begin, end, true}); });
    std::vector<Span> spans = fill_gaps(matches, word.size());
    for (Span& span : spans) span.is_match ^= invert_;
    apply_split(behavior_, word, spans, out.views);
  }
  [[nodiscard]] int64_t resident_bytes() const override { return regex_.resident_bytes(); }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool invert_;
};

// Digits are all numbers (N*), one by one or in runs.
class Digits final : public PreTokenizer {
 public:
  explicit Digits(bool individual)
      : behavior_(individual ? SplitBehavior::isolated : SplitBehavior::contiguous) {}

  void split(std::string_view word, Words& out) const override {
    const UnicodeClasses& classes = UnicodeClasses::instance();
    std::vector<Span> matches;
    for (size_t i = 0; i < word.size();) {
      const Utf8Char c = decode_utf8(word.data() + i);
      if ((classes[c.code] & kDigit) != 0) matches.push_back({i, i + c.bytes, true});
      i += c.bytes;
    }
    apply_split(behavior_, word, fill_gaps(matches, word.size()), out.views);
  }

 private:
  SplitBehavior behavior_;
};

// What ByteLevel does besides turning text into bytes.
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

// A literal pattern as a regular expression.
std::string escape(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view("\\^$.[]|()?*+{}-#&~").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::unique_ptr<PreTokenizer> make_split(const Json& json, const std::string& where) {
  const Json& pattern = json.at("pattern");
  const bool is_regex = pattern.contains("Regex");
  const auto text = pattern.at(is_regex ? "Regex" : "String").get<std::string>();
  const SplitBehavior behavior = parse_split_behavior(json.at("behavior").get<std::string>(), where);
  if (is_regex && behavior == SplitBehavior::isolated)
    if (const std::optional<KnownRegex> known = known_regex(text))
      return std::make_unique<ScannerSplit>(*known);
  return std::make_unique<RegexSplit>(Regex(is_regex ? text : escape(text), where), behavior,
                                      value_or(json, "invert", false));
}

void append_stages(const Json& json, const std::string& where, PreTokenizerChain& chain) {
  const auto type = json.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const Json& stage : json.at("pretokenizers")) append_stages(stage, where, chain);
    return;
  }
  if (chain.byte_level)
    refuse_component(where, "pre-tokenizer", type + " after ByteLevel",
                     "ByteLevel as the last of a Sequence");
  if (type == "Split") {
    chain.stages.push_back(make_split(json, where));
  } else if (type == "Digits") {
    chain.stages.push_back(std::make_unique<Digits>(value_or(json, "individual_digits", false)));
  } else if (type == "ByteLevel") {
    chain.byte_level = true;
    const bool add_prefix_space = json.at("add_prefix_space").get<bool>();
    const bool use_regex = value_or(json, "use_regex", true);
    if (add_prefix_space || use_regex)
      chain.stages.push_back(std::make_unique<ByteLevelSplit>(add_prefix_space, use_regex));
  } else {
    refuse_component(where, "pre-tokenizer", type, "Sequence, Split, Digits, ByteLevel");
  }
}

}  // namespace

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

PreTokenizerChain make_pre_tokenizer(const Json& json, const std::string& where) {
  PreTokenizerChain chain;
  if (!json.is_null()) append_stages(json, where, chain);
  return chain;
}

}  // namespace plimsoll
