// Split: by a literal string or a regular expression.
#include <optional>

#include "tokenizer/steps/pattern.h"
#include "tokenizer/steps/pre_tokenizer.h"
#include "tokenizer/steps/split.h"
#include "unicode/scanners.h"

namespace plimsoll {
namespace {

// By a known expression: every byte belongs to a match, so "isolated" and "invert" change nothing.
class ScannerSplit final : public PreTokenizer {
 public:
  explicit ScannerSplit(KnownRegex regex) : regex_(regex) {}
  void split(std::string_view word, Words& out) const override { add_scanned(regex_, word, out); }

 private:
  KnownRegex regex_;
};

// By any other pattern, with any behaviour.
class PatternSplit final : public PreTokenizer {
 public:
  PatternSplit(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void split(std::string_view word, Words& out) const override {
    std::vector<Span> matches;
    pattern_.for_each_match(word, [&](size_t begin, size_t end) { matches.push_back({begin, end, true}); });
    std::vector<Span> spans = fill_gaps(matches, word.size());
    for (Span& span : spans) span.is_match ^= invert_;
    apply_split(behavior_, word, spans, [&](std::string_view part) { out.add(part); });
  }
  [[nodiscard]] int64_t resident_bytes() const override { return pattern_.resident_bytes(); }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_split(const JsonPart& json, std::string_view type) {
  if (type != "Split") return nullptr;
  const SplitBehavior behavior = parse_split_behavior(json.at("behavior"));
  const JsonPart pattern = json.at("pattern");
  if (pattern.has("Regex") && behavior == SplitBehavior::isolated)
    if (const std::optional<KnownRegex> known = known_regex(pattern.at("Regex").text()))
      return std::make_unique<ScannerSplit>(*known);
  return std::make_unique<PatternSplit>(Pattern(pattern), behavior, json.flag_or("invert", false));
}

}  // namespace plimsoll
