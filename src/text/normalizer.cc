#include "text/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

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

using Instance = const icu::Normalizer2* (*)(UErrorCode&);

// NFC, NFD, NFKC or NFKD.
class UnicodeForm final : public Normalizer {
 public:
  // Text whose bytes are all below `first_active` is in this form already.
  UnicodeForm(Instance instance, unsigned char first_active)
      : first_active_(first_active), filtered_(base(instance), unicode_9()) {}

  std::string_view normalize(std::string_view text, std::string& storage) const override {
    if (std::all_of(text.begin(), text.end(),
                    [this](char c) { return static_cast<unsigned char>(c) < first_active_; }))
      return text;
    UErrorCode status = U_ZERO_ERROR;
    const icu::StringPiece source(text.data(), static_cast<int32_t>(text.size()));
    if (filtered_.isNormalizedUTF8(source, status) != 0 && U_SUCCESS(status)) return text;
    std::string result;
    icu::StringByteSink<std::string> sink(&result);
    filtered_.normalizeUTF8(0, source, sink, nullptr, status);
    check_icu(status, "normalizeUTF8");
    storage = std::move(result);
    return storage;
  }

  // Measured: the frozen set with its spans, shared by all forms. The tables are mapped with the library.
  [[nodiscard]] int64_t resident_bytes() const override { return 64 << 10; }

 private:
  static const icu::Normalizer2& base(Instance instance) {
    UErrorCode status = U_ZERO_ERROR;
    const icu::Normalizer2* form = instance(status);
    check_icu(status, "loading the normalisation data");
    return *form;
  }

  unsigned char first_active_;
  icu::FilteredNormalizer2 filtered_;
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}

  std::string_view normalize(std::string_view text, std::string& storage) const override {
    for (const auto& step : steps_) text = step->normalize(text, storage);
    return text;
  }
  [[nodiscard]] int64_t resident_bytes() const override {
    int64_t bytes = 0;
    for (const auto& step : steps_) bytes += step->resident_bytes();
    return bytes;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

// Lead byte 0xCC starts U+0300, the first character that NFC looks at; the others act from U+00A0 on.
constexpr unsigned char kFromU0300 = 0xCC;
constexpr unsigned char kFromU0080 = 0x80;

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Json& json, const std::string& where) {
  if (json.is_null()) return nullptr;
  const auto type = json.at("type").get<std::string>();
  if (type == "NFC") return std::make_unique<UnicodeForm>(&icu::Normalizer2::getNFCInstance, kFromU0300);
  if (type == "NFD") return std::make_unique<UnicodeForm>(&icu::Normalizer2::getNFDInstance, kFromU0080);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(&icu::Normalizer2::getNFKCInstance, kFromU0080);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(&icu::Normalizer2::getNFKDInstance, kFromU0080);
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (const Json& step : json.at("normalizers")) steps.push_back(make_normalizer(step, where));
    std::erase(steps, nullptr);
    return std::make_unique<NormalizerSequence>(std::move(steps));
  }
  refuse_component(where, "normalizer", type, "NFC, NFD, NFKC, NFKD, Sequence, null");
}

}  // namespace plimsoll
