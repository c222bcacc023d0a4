// NFC, NFD, NFKC and NFKD by the tables of Unicode 9.0, as the reference normalises.
#pragma once

#include <unicode/normalizer2.h>

#include <cstdint>

#include "tokenizer/steps/normalizer.h"

namespace plimsoll {

enum class UnicodeFormKind : uint8_t { nfc, nfd, nfkc, nfkd };

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(UnicodeFormKind kind);
  void apply(NormalText& text) const override;
  // Measured: the frozen set with its spans, shared by all forms. The tables are mapped with the library.
  [[nodiscard]] int64_t resident_bytes() const override { return 64 << 10; }

 private:
  unsigned char first_active_;    // text whose bytes are all below is in this form already
  const icu::Normalizer2* form_;  // ICU's own
  icu::FilteredNormalizer2 filtered_;
};

}  // namespace plimsoll
