#include "tokenizer/models/byte_level.h"

#include <array>

#include "unicode/utf8.h"

namespace plimsoll {
namespace {

constexpr char32_t kFirstShifted = 0x100;
constexpr char32_t kEndShifted = 0x144;

struct Alphabet {
  std::array<std::string, 256> chars;
  // Byte of every code point below kEndShifted, or -1.
  std::array<int16_t, kEndShifted> bytes{};

  Alphabet() {
    bytes.fill(-1);
    char32_t shifted = kFirstShifted;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      const char32_t code = printable ? byte : shifted++;
      append_utf8(code, chars[byte]);
      bytes[code] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_level_char(unsigned char byte) { return alphabet().chars[byte]; }

void append_byte_level(std::string_view bytes, std::string& out) {
  const Alphabet& map = alphabet();
  for (const char c : bytes) out += map.chars[static_cast<unsigned char>(c)];
}

void append_bytes_of_token(std::string_view token, std::string& out) {
  const Alphabet& map = alphabet();
  const size_t before = out.size();
  out.resize(before + token.size());  // at most
  char* to = out.data() + before;
  for (const char* p = token.data(); p != token.data() + token.size();) {
    const Utf8Char c = decode_utf8(p);
    if (c.code >= kEndShifted || map.bytes[c.code] < 0) {
      out.replace(before, token.size(), token);
      return;
    }
    *to++ = static_cast<char>(map.bytes[c.code]);
    p += c.bytes;
  }
  out.resize(static_cast<size_t>(to - out.data()));
}

size_t bytes_of_token_in(std::string_view token, std::string_view text) {
  const Alphabet& map = alphabet();
  size_t count = 0;
  for (size_t i = 0; i < token.size(); ++count) {
    if (count == text.size()) return 0;
    if (token[i] > ' ' && token[i] <= '~') {  // stands for itself
      if (token[i++] != text[count]) return 0;
      continue;
    }
    const Utf8Char c = decode_utf8(token.data() + i);
    if (c.code >= kEndShifted || map.bytes[c.code] != static_cast<unsigned char>(text[count])) return 0;
    i += c.bytes;
  }
  return count;
}

}  // namespace plimsoll
