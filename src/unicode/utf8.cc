#include "unicode/utf8.h"

#include <algorithm>
#include <cstring>

namespace plimsoll {
namespace {

// The number of bytes that a lead byte announces, and the bounds of the second one: they shut out overlong
// forms, surrogates and code points above U+10FFFF (Unicode table 3-7).
struct Lead {
  uint32_t bytes;
  unsigned char low;
  unsigned char high;
};
Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  for (uint64_t word = 0; i + sizeof word <= text.size(); i += sizeof word) {
    std::memcpy(&word, text.data() + i, sizeof word);
    if ((word & 0x8080808080808080U) != 0) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

// Bytes from the start that are whole, valid characters.
size_t valid_prefix(std::string_view text) {
  size_t i = 0;
  while (true) {
    i += ascii_prefix(text.substr(i));
    if (i == text.size()) return i;
    const Utf8Step step = next_utf8_step(text.substr(i));
    if (step.status != Utf8Status::complete) return i;
    i += step.bytes;
  }
}

}  // namespace

void append_utf8(char32_t code, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

Utf8Step next_utf8_step(std::string_view text) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  if (lead.bytes == 0) return {Utf8Status::broken, 1};
  unsigned char low = lead.low;
  unsigned char high = lead.high;
  for (uint32_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {Utf8Status::cut_off, i};
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < low || byte > high) return {Utf8Status::broken, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Status::complete, lead.bytes};
}

bool is_valid_utf8(std::string_view text) { return valid_prefix(text) == text.size(); }

bool is_ascii(std::string_view text) {
  unsigned all = 0;  // not left early: compilers make vectors of it
  for (const char c : text) all |= static_cast<unsigned char>(c);
  return all < 0x80;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const size_t good = valid_prefix(text);
    out += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) return out;
    out += kReplacement;
    text.remove_prefix(next_utf8_step(text).bytes);
  }
}

size_t unfinished_utf8_bytes(std::string_view text) {
  for (size_t tail = 1; tail <= std::min<size_t>(3, text.size()); ++tail) {
    const std::string_view last = text.substr(text.size() - tail);
    if ((static_cast<unsigned char>(last[0]) & 0xC0) == 0x80) continue;
    const Utf8Step step = next_utf8_step(last);
    return step.status == Utf8Status::cut_off ? tail : 0;
  }
  return 0;
}

}  // namespace plimsoll
