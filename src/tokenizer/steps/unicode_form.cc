#include "tokenizer/steps/unicode_form.h"

#include <unicode/bytestream.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/format.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

void check_icu(UErrorCode status, std::string_view what) {
  if (U_FAILURE(status)) throw InternalError(formatted("ICU: {} failed: {}", what, u_errorName(status)));
}

// The characters of Unicode 9.0: the reference normalises by the tables of that version, so that younger
// characters stay as they are (ICU's own tables would change, say, U+32FF).
const icu::UnicodeSet& unicode_9() {
  static const std::unique_ptr<icu::UnicodeSet> set = [] {
    UErrorCode status = U_ZERO_ERROR;
    auto s = std::make_unique<icu::UnicodeSet>(icu::UnicodeString("[:age=9.0:]"), status);
    check_icu(status, "the set [:age=9.0:]");
    s->freeze();
    return s;
  }();
  return *set;
}

const icu::Normalizer2& base(UnicodeFormKind kind) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* form = nullptr;
  switch (kind) {
    case UnicodeFormKind::nfc:
      form = icu::Normalizer2::getNFCInstance(status);
      break;
    case UnicodeFormKind::nfd:
      form = icu::Normalizer2::getNFDInstance(status);
      break;
    case UnicodeFormKind::nfkc:
      form = icu::Normalizer2::getNFKCInstance(status);
      break;
    case UnicodeFormKind::nfkd:
      form = icu::Normalizer2::getNFKDInstance(status);
      break;
  }
  check_icu(status, "loading the normalisation data");
  return *form;
}

// Lead byte 0xCC starts U+0300, the first character that NFC looks at; the others act from U+00A0 on.
constexpr unsigned char kFromU0300 = 0xCC;
constexpr unsigned char kFromU0080 = 0x80;
constexpr char32_t kFirstMark = 0x300;

// Marks behind a character are put in order by ICU with one insertion each, in time that grows with the
// square of their number. Where there are more than texts have (Unicode's own limit for streams is 30), they
// come in order.
constexpr size_t kManyMarks = 256;

struct Mark {
  UChar32 code;
  uint8_t order;
};

// The characters of `text`, all but the first without a boundary before it, decomposed and in canonical
// order: the same text to every form.
void append_ordered(const icu::Normalizer2& form, std::string_view text, std::string& out) {
  std::vector<Mark> marks;
  icu::UnicodeString parts;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text.data() + i);
    i += c.bytes;
    if (form.getDecomposition(static_cast<UChar32>(c.code), parts) == 0) parts = static_cast<UChar32>(c.code);
    for (int32_t at = 0; at < parts.length(); at = parts.moveIndex32(at, 1))
      marks.push_back({parts.char32At(at), form.getCombiningClass(parts.char32At(at))});
  }
  const auto is_mark = [](const Mark& one) { return one.order != 0; };
  for (auto begin = marks.begin(); begin != marks.end();) {
    begin = std::find_if(begin, marks.end(), is_mark);
    const auto end = std::find_if_not(begin, marks.end(), is_mark);
    std::stable_sort(begin, end, [](const Mark& one, const Mark& other) { return one.order < other.order; });
    begin = end;
  }
  for (const Mark& one : marks) append_utf8(static_cast<char32_t>(one.code), out);
}

// The text with many marks behind one character in order; nothing where it has no such marks. Characters that
// are younger than the filter are left alone, as the filter does.
std::optional<std::string> with_ordered_marks(const icu::Normalizer2& form, std::string_view text) {
  std::optional<std::string> out;
  size_t begin = 0, taken = 0, count = 0;
  const auto end_at = [&](size_t end) {
    if (count > kManyMarks) {
      if (!out) out.emplace();
      out->append(text.substr(taken, begin - taken));
      append_ordered(form, text.substr(begin, end - begin), *out);
      taken = end;
    }
    begin = end;
    count = 0;
  };
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text.data() + i);
    const auto code = static_cast<UChar32>(c.code);
    const bool younger = c.code >= kFirstMark && !unicode_9().contains(code);
    if (c.code < kFirstMark || younger || form.hasBoundaryBefore(code) != 0) end_at(i);
    i += c.bytes;
    if (younger) end_at(i);
    if (begin < i) ++count;
  }
  end_at(text.size());
  if (out) out->append(text.substr(taken));
  return out;
}

}  // namespace

UnicodeForm::UnicodeForm(UnicodeFormKind kind)
    : first_active_(kind == UnicodeFormKind::nfc ? kFromU0300 : kFromU0080),
      form_(&base(kind)),
      filtered_(*form_, unicode_9()) {}

void UnicodeForm::apply(NormalText& normal) const {
  std::string_view text = normal.text();
  if (std::all_of(text.begin(), text.end(),
                  [this](char c) { return static_cast<unsigned char>(c) < first_active_; }))
    return;
  const std::optional<std::string> ordered = with_ordered_marks(*form_, text);
  if (ordered) text = *ordered;
  UErrorCode status = U_ZERO_ERROR;
  const icu::StringPiece source(text.data(), static_cast<int32_t>(text.size()));
  if (!ordered && filtered_.isNormalizedUTF8(source, status) != 0 && U_SUCCESS(status)) return;
  icu::StringByteSink<std::string> sink(&normal.begin());
  filtered_.normalizeUTF8(0, source, sink, nullptr, status);
  check_icu(status, "normalizeUTF8");
  normal.commit();
}

std::unique_ptr<Normalizer> make_unicode_form(const JsonPart&, std::string_view type) {
  if (type == "NFC") return std::make_unique<UnicodeForm>(UnicodeFormKind::nfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(UnicodeFormKind::nfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(UnicodeFormKind::nfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(UnicodeFormKind::nfkd);
  return nullptr;
}

}  // namespace plimsoll
