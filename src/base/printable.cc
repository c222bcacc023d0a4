#include "base/printable.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace plimsoll {
namespace {

struct CodePoint {
  uint32_t code;
  size_t bytes;  // 0: no UTF-8
};

// By the table of well-formed byte sequences: no overlong forms, no surrogates.
CodePoint code_point_at(std::string_view text) {
  const auto byte = [text](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const uint32_t lead = byte(0);
  if (lead < 0x80U) return {lead, 1};
  const size_t bytes = lead >= 0xF0U ? 4 : lead >= 0xE0U ? 3 : 2;
  if (lead < 0xC2U || lead > 0xF4U) return {0, 0};
  uint32_t code = lead & (0xFFU >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {0, 0};
    code = code << 6 | (byte(i) & 0x3FU);
  }
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800U && code <= 0xDFFFU;
  return code < kLeast[bytes] || code > 0x10FFFFU || surrogate ? CodePoint{0, 0} : CodePoint{code, bytes};
}

// Controls; embeddings, overrides and isolates of direction; separators that break a line.
bool is_hidden(uint32_t code) {
  return code < 0x20U || (code >= 0x7FU && code < 0xA0U) || (code >= 0x202AU && code <= 0x202EU) ||
         (code >= 0x2066U && code <= 0x2069U) || code == 0x2028U || code == 0x2029U;
}

void append_escape(std::string& out, uint32_t code) {
  const char* const letter = code == '\n' ? "\\n" : code == '\r' ? "\\r" : code == '\t' ? "\\t" : nullptr;
  if (letter != nullptr) {
    out += letter;
    return;
  }
  std::array<char, 8> escape{};
  std::snprintf(escape.data(), escape.size(), "\\u%04x", code & 0xFFFFU);
  out += escape.data();
}

std::string visible(std::string_view text, bool keeps_lines) {
  // Almost all text is plain, and lists have tens of thousands of cells.
  const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7F; };
  if (std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text.substr(i));
    const bool stays = keeps_lines &&
                       (c.code == '\n' || c.code == '\t' || text.substr(i).starts_with("\r\n")) &&
                       c.bytes == 1;
    if (c.bytes == 0) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\x%02x", static_cast<unsigned char>(text[i]));
      out += escape.data();
    } else if (is_hidden(c.code) && !stays) {
      append_escape(out, c.code);
    } else {
      out += text.substr(i, c.bytes);
    }
    i += c.bytes == 0 ? 1 : c.bytes;
  }
  return out;
}

}  // namespace

std::string printable(std::string_view name) { return visible(name, false); }
std::string printable_text(std::string_view text) { return visible(text, true); }

}  // namespace plimsoll
