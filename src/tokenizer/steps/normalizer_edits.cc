// The small normalisers: Lowercase, Prepend, Replace, Strip, StripAccents.
#include "tokenizer/steps/normalizer.h"
#include "tokenizer/steps/pattern.h"
#include "unicode/lower_case.h"
#include "unicode/unicode_classes.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

class Lowercase final : public Normalizer {
 public:
  void apply(NormalText& text) const override {
    append_lower_case(text.text(), text.begin());
    text.commit();
  }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string content) : content_(std::move(content)) {}
  void apply(NormalText& text) const override {
    if (text.text().empty()) return;
    if (content_.size() > text.most()) refuse_growth(text.text().size());
    text.begin().append(content_).append(text.text());
    text.commit();
  }

 private:
  std::string content_;
};

class Replace final : public Normalizer {
 public:
  Replace(const JsonPart& json) : pattern_(json.at("pattern")), content_(json.at("content").text()) {}

  void apply(NormalText& text) const override {
    const std::string_view old = text.text();
    size_t at_start = 0;  // length of a match at the start
    if (text.from_start())
      pattern_.for_each_match(old, [&](size_t begin, size_t end) {
        if (begin == 0) at_start = end;
      });
    if (!pattern_.replace(old, content_, text.most(), text.begin())) return;
    // The replacement of a match counts as standing at the match's last character.
    if (at_start > 0 && (content_.empty() || decode_utf8(old.data()).bytes < at_start)) text.lose_start();
    text.commit();
  }
  [[nodiscard]] int64_t resident_bytes() const override { return pattern_.resident_bytes(); }

 private:
  Pattern pattern_;
  std::string content_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalText& normal) const override {
    std::string_view text = normal.text();
    const auto is_white = [](const Utf8Char& c) { return (text_classes()[c.code] & kWhite) != 0; };
    for (Utf8Char c{}; left_ && !text.empty() && is_white(c = decode_utf8(text.data()));)
      text.remove_prefix(c.bytes);
    for (Utf8Char c{};
         right_ && !text.empty() && is_white(c = decode_utf8_before(text.data() + text.size()));)
      text.remove_suffix(c.bytes);
    normal.keep(text);
  }

 private:
  bool left_;
  bool right_;
};

class StripAccents final : public Normalizer {
 public:
  void apply(NormalText& normal) const override {
    const std::string_view text = normal.text();
    std::string& out = normal.begin();
    for (size_t i = 0; i < text.size();) {
      const Utf8Char c = decode_utf8(text.data() + i);
      if ((text_classes()[c.code] & kCombiningMark) == 0)
        out += text.substr(i, c.bytes);
      else if (i == 0)
        normal.lose_start();
      i += c.bytes;
    }
    normal.commit();
  }
};

}  // namespace

std::unique_ptr<Normalizer> make_edit_normalizer(const JsonPart& json, std::string_view type) {
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Prepend") return std::make_unique<Prepend>(json.at("prepend").text());
  if (type == "Replace") return std::make_unique<Replace>(json);
  if (type == "Strip")
    return std::make_unique<Strip>(json.at("strip_left").flag(), json.at("strip_right").flag());
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  return nullptr;
}

}  // namespace plimsoll
