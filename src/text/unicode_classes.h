// Character classes of the tokenizer scanners, one byte of flags per code point.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll {

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

// The generated ranges, unfolded into a two-stage table (about 60 kB, built at first use): Unicode 16.0, read
// off the reference implementation. ICU and PCRE2 of today's distributions stand at Unicode 14 and 15.
class UnicodeClasses {
 public:
  static const UnicodeClasses& instance();

  [[nodiscard]] uint8_t operator[](char32_t code) const {
    return blocks_[(size_t{block_of_[code >> kShift]} << kShift) + (code & ((1U << kShift) - 1))];
  }

 private:
  static constexpr unsigned kShift = 8;
  UnicodeClasses();

  std::array<uint16_t, (0x110000 >> kShift)> block_of_{};
  std::vector<uint8_t> blocks_;
};

}  // namespace plimsoll
