// BertNormalizer: clean the text, spaces around Chinese characters, accents off, lower case; in this order.
#include "tokenizer/steps/normalizer.h"
#include "tokenizer/steps/unicode_form.h"
#include "unicode/lower_case.h"
#include "unicode/unicode_classes.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const JsonPart& json)
      : clean_(json.flag_or("clean_text", true)),
        chinese_(json.flag_or("handle_chinese_chars", true)),
        lower_(json.flag_or("lowercase", true)),
        strip_accents_(json.flag_or("strip_accents", lower_)) {}

  void apply(NormalText& text) const override {
    if (clean_ || chinese_) clean(text);
    if (strip_accents_) {
      nfd_.apply(text);
      strip_marks(text);
    }
    if (lower_) {
      append_lower_case(text.text(), text.begin());
      text.commit();
    }
  }
  [[nodiscard]] int64_t resident_bytes() const override { return nfd_.resident_bytes(); }

 private:
  void clean(NormalText& normal) const {
    const std::string_view text = normal.text();
    std::string& out = normal.begin();
    for (size_t i = 0; i < text.size();) {
      const Utf8Char c = decode_utf8(text.data() + i);
      const std::string_view bytes = text.substr(i, c.bytes);
      const unsigned flags = text_classes()[c.code];
      reserve_more(out, bytes.size() + 2);
      if (clean_ && (flags & kBertRemoved) != 0) {
        if (i == 0) normal.lose_start();
      } else if (clean_ && (flags & kBertSpace) != 0) {
        out += ' ';
      } else if (chinese_ && (flags & kBertChinese) != 0) {
        out.append(" ").append(bytes).append(" ");
      } else {
        out += bytes;
      }
      i += c.bytes;
    }
    normal.commit();
  }

  static void strip_marks(NormalText& normal) {
    const std::string_view text = normal.text();
    std::string& out = normal.begin();
    for (size_t i = 0; i < text.size();) {
      const Utf8Char c = decode_utf8(text.data() + i);
      if (c.code < 0x80 || (text_classes()[c.code] & kNonspacingMark) == 0)
        out += text.substr(i, c.bytes);
      else if (i == 0)
        normal.lose_start();
      i += c.bytes;
    }
    normal.commit();
  }

  bool clean_;
  bool chinese_;
  bool lower_;
  bool strip_accents_;  // null in the file: as lowercase
  UnicodeForm nfd_{UnicodeFormKind::nfd};
};

}  // namespace

std::unique_ptr<Normalizer> make_bert_normalizer(const JsonPart& json, std::string_view type) {
  return type == "BertNormalizer" ? std::make_unique<BertNormalizer>(json) : nullptr;
}

}  // namespace plimsoll
