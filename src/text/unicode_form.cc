#include "text/unicode_form.h"

#include <unicode/bytestream.h>
#include <unicode/uniset.h>

#include <algorithm>

namespace plimsoll {
namespace {

void check_icu(UErrorCode status, std::string_view what) {
  if (U_FAILURE(status)) throw InternalError("ICU: " + std::string(what) + " failed: " + u_errorName(status));
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

}  // namespace

UnicodeForm::UnicodeForm(UnicodeFormKind kind)
    : first_active_(kind == UnicodeFormKind::nfc ? kFromU0300 : kFromU0080),
      filtered_(base(kind), unicode_9()) {}

void UnicodeForm::apply(NormalText& normal) const {
  const std::string_view text = normal.text();
  if (std::all_of(text.begin(), text.end(),
                  [this](char c) { return static_cast<unsigned char>(c) < first_active_; }))
    return;
  UErrorCode status = U_ZERO_ERROR;
  const icu::StringPiece source(text.data(), static_cast<int32_t>(text.size()));
  if (filtered_.isNormalizedUTF8(source, status) != 0 && U_SUCCESS(status)) return;
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
