// UTF-8: reading valid text fast, and repairing invalid text exactly as Python's errors="replace" does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll {

struct Utf8Char {
  char32_t code;
  uint32_t bytes;
};

// The character at `p`, which must start a valid sequence.
inline Utf8Char decode_utf8(const char* p) {
  const auto byte = [p](int i) { return static_cast<char32_t>(static_cast<unsigned char>(p[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// The character that ends right before `end`; the text before it must be valid and not empty.
inline Utf8Char decode_utf8_before(const char* end) {
  const char* p = end - 1;
  while ((static_cast<unsigned char>(*p) & 0xC0) == 0x80) --p;
  return decode_utf8(p);
}

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

void append_utf8(char32_t code, std::string& out);

enum class Utf8Status : uint8_t { complete, broken, cut_off };
// The step at the start of `text` (not empty): one character, or the longest part of one that is broken by
// the byte after it or cut off by the end of the text. One such part becomes one U+FFFD (Unicode 3.9,
// "maximal subparts": the rule of Python and Rust).
struct Utf8Step {
  Utf8Status status;
  uint32_t bytes;
};
Utf8Step next_utf8_step(std::string_view text);

bool is_valid_utf8(std::string_view text);
bool is_ascii(std::string_view text);
// Invalid parts become U+FFFD.
std::string replace_invalid_utf8(std::string_view text);
// The number of bytes at the end of `text` that are an unfinished but so far correct character (0 to 3).
size_t unfinished_utf8_bytes(std::string_view text);

}  // namespace plimsoll
