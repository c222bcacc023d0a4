// Character classes, one word of flags per code point.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace plimsoll {

// Classes of the regular expressions that the scanners match: of Unicode 16.0.
enum UnicodeClass : uint8_t {
  kLetter = 1,     // \p{L}
  kMark = 2,       // \p{M}
  kNumber = 4,     // \p{N}
  kSpace = 8,      // \s: U+0085 is in, U+001C-1F, U+180E and U+200B are not
  kUpperRun = 16,  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLowerRun = 32,  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kWord = 64,      // \w as single_word added tokens see it
  kDigit = 128,    // N* as Digits sees it: of Unicode 17
};

// Classes of the other normalisers and pre-tokenisers. In the reference they come from several libraries,
// with Unicode versions from 8 to 17.
enum TextClass : uint16_t {
  kWhite = 1,            // white space of Strip, WhitespaceSplit, BertPreTokenizer
  kBertSpace = 2,        // BertNormalizer's clean_text makes it a space
  kBertRemoved = 4,      // and removes it
  kBertChinese = 8,      // gets a space on each side
  kNonspacingMark = 16,  // an accent for BertNormalizer
  kCombiningMark = 32,   // an accent for StripAccents
  kBertPunctuation = 64,
  kPunctuation = 128,
  kWordCharacter = 256,  // \w of Whitespace
  kWordGap = 512,        // \s of Whitespace
};

// Ranges unfolded into a two-stage table of 60 to 120 kB.
template <typename Flags>
class ClassTable {
 public:
  struct Range {
    char32_t first;
    char32_t last;
    Flags flags;
  };
  // Ascending, without overlaps.
  explicit ClassTable(std::span<const Range> ranges);

  [[nodiscard]] Flags operator[](char32_t code) const {
    return blocks_[(size_t{block_of_[code >> kShift]} << kShift) + (code & ((1U << kShift) - 1))];
  }

 private:
  static constexpr unsigned kShift = 8;

  std::array<uint16_t, (0x110000 >> kShift)> block_of_{};
  std::vector<Flags> blocks_;
};

// The generated tables, read off the reference implementation and built at first use: ICU and PCRE2 of
// today's distributions stand at Unicode 14 and 15.
using UnicodeClasses = ClassTable<uint8_t>;
using TextClasses = ClassTable<uint16_t>;
const UnicodeClasses& unicode_classes();
const TextClasses& text_classes();

}  // namespace plimsoll
