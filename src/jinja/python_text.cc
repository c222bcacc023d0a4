#include "jinja/python_text.h"

#include <unicode/ucasemap.h>
#include <unicode/uchar.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "base/format.h"
#include "jinja/value.h"
#include "unicode/utf8.h"

namespace plimsoll::jinja {
namespace {

constexpr char32_t kSpaces[] = {0x1C,   0x1D,   0x1E,   0x1F,   0x20,   0x85,  0xA0,
                                0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};

bool is_one_of(char32_t code, const std::string& chars) {
  for (size_t at = 0; at < chars.size();)
    if (next_code_point(chars, at) == code) return true;
  return false;
}

bool is_stripped(char32_t code, const std::string* chars) {
  return chars == nullptr ? is_space(code) : is_one_of(code, *chars);
}

using CaseMapping = int32_t (*)(const UCaseMap*, char*, int32_t, const char*, int32_t, UErrorCode*);

// ICU's mapping of the root locale: the full mapping of Unicode, as Python's.
std::string map_case(std::string_view text, CaseMapping mapping) {
  UErrorCode error = U_ZERO_ERROR;
  UCaseMap* map = ucasemap_open("", 0, &error);
  std::string out(text.size() * 3 + 8, '\0');
  const int32_t bytes = mapping(map, out.data(), static_cast<int32_t>(out.size()), text.data(),
                                static_cast<int32_t>(text.size()), &error);
  ucasemap_close(map);
  if (U_FAILURE(error)) fail("a text cannot change its case: " + std::string(u_errorName(error)));
  out.resize(static_cast<size_t>(bytes));
  return out;
}

std::string title_of_first(std::string_view first) {
  const auto mapping = [](const UCaseMap* map, char* out, int32_t room, const char* text, int32_t bytes,
                          UErrorCode* error) {
    return ucasemap_utf8ToTitle(const_cast<UCaseMap*>(map), out, room, text, bytes, error);
  };
  // A single letter: the mapping of a whole text would look for words.
  return map_case(first, mapping);
}

bool is_cased(char32_t code) { return u_hasBinaryProperty(static_cast<UChar32>(code), UCHAR_CASED) != 0; }

// No letter follows: a capital sigma at the end of a word becomes another small letter.
bool ends_word(std::string_view rest) {
  for (size_t at = 0; at < rest.size();) {
    const char32_t code = next_code_point(rest, at);
    if (u_hasBinaryProperty(static_cast<UChar32>(code), UCHAR_CASE_IGNORABLE) == 0) return !is_cased(code);
  }
  return true;
}

bool is_printable(char32_t code) {
  if (code == ' ') return true;
  switch (u_charType(static_cast<UChar32>(code))) {
    case U_CONTROL_CHAR:
    case U_FORMAT_CHAR:
    case U_SURROGATE:
    case U_PRIVATE_USE_CHAR:
    case U_UNASSIGNED:
    case U_LINE_SEPARATOR:
    case U_PARAGRAPH_SEPARATOR:
    case U_SPACE_SEPARATOR:
      return false;
    default:
      return true;
  }
}

std::string hex_escape(char32_t code) {
  std::array<char, 16> buffer{};
  const char* format = code < 0x100 ? "\\x%02x" : (code < 0x10000 ? "\\u%04x" : "\\U%08x");
  std::snprintf(buffer.data(), buffer.size(), format, static_cast<unsigned>(code));
  return buffer.data();
}

bool all_cased_are(std::string_view text, UProperty property) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    if (!is_cased(code)) continue;
    if (u_hasBinaryProperty(static_cast<UChar32>(code), property) == 0) return false;
    any = true;
  }
  return any;
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& at) {
  const Utf8Char c = decode_utf8(text.data() + at);
  at += c.bytes;
  return c.code;
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

size_t byte_of_code_point(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) next_code_point(text, at);
  return at;
}

bool is_space(char32_t code) {
  if (code >= 0x09 && code <= 0x0D) return true;
  if (code >= 0x2000 && code <= 0x200A) return true;
  for (const char32_t space : kSpaces)
    if (code == space) return true;
  return false;
}

bool is_space(std::string_view text) { return strip_left(text).empty(); }

std::string_view strip_left(std::string_view text, const std::string* chars) {
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (!is_stripped(next_code_point(text, at), chars)) return text.substr(start);
  }
  return {};
}

std::string_view strip_right(std::string_view text, const std::string* chars) {
  while (!text.empty()) {
    const Utf8Char last = decode_utf8_before(text.data() + text.size());
    if (!is_stripped(last.code, chars)) break;
    text.remove_suffix(last.bytes);
  }
  return text;
}

std::string to_upper(std::string_view text) { return map_case(text, ucasemap_utf8ToUpper); }
std::string to_lower(std::string_view text) { return map_case(text, ucasemap_utf8ToLower); }

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  size_t first = 0;
  next_code_point(text, first);
  // Lowered as a whole: what a final sigma becomes depends on what stands before it.
  const std::string lowered = to_lower(text);
  size_t rest = to_lower(text.substr(0, first)).size();
  return title_of_first(text.substr(0, first)) + lowered.substr(std::min(rest, lowered.size()));
}

std::string python_title(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t code = next_code_point(text, at);
    const std::string_view letter = text.substr(start, at - start);
    constexpr char32_t kSigma = 0x3A3;
    if (after_cased && code == kSigma)
      out += ends_word(text.substr(at)) ? "\u03C2" : "\u03C3";
    else
      out += after_cased ? to_lower(letter) : title_of_first(letter);
    after_cased = is_cased(code);
  }
  return out;
}

bool is_all_upper(std::string_view text) { return all_cased_are(text, UCHAR_UPPERCASE); }
bool is_all_lower(std::string_view text) { return all_cased_are(text, UCHAR_LOWERCASE); }

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t code = next_code_point(text, at);
    const bool breaks = (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
                        code == 0x2028 || code == 0x2029;
    if (!breaks) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(start, end - start));
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string repr(std::string_view text) {
  const bool double_quoted =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quoted ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t code = next_code_point(text, at);
    if (code == static_cast<char32_t>(quote) || code == '\\')
      out += std::string("\\") + static_cast<char>(code);
    else if (code == '\n')
      out += "\\n";
    else if (code == '\r')
      out += "\\r";
    else if (code == '\t')
      out += "\\t";
    else if (is_printable(code))
      out += text.substr(start, at - start);
    else
      out += hex_escape(code);
  }
  return out + quote;
}

// The shortest digits that read back as the value, in Python's layout: 1e+16 and 1e-05 have exponents.
std::string repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  std::string_view shortest(buffer.data(), static_cast<size_t>(end - buffer.data()));
  const std::string sign = shortest.front() == '-' ? "-" : "";
  shortest.remove_prefix(sign.size());
  const size_t e = shortest.find('e');
  const int exponent = std::stoi(std::string(shortest.substr(e + 1)));
  std::string digits(1, shortest[0]);
  if (e > 1) digits += shortest.substr(2, e - 2);
  if (exponent < -4 || exponent >= 16) {
    const std::string power = std::to_string(std::abs(exponent));
    return formatted("{}{}{}e{}{}{}", sign, digits[0], digits.size() > 1 ? "." + digits.substr(1) : "",
                     exponent < 0 ? "-" : "+", power.size() < 2 ? "0" : "", power);
  }
  if (exponent < 0)
    return formatted("{}0.{}{}", sign, std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  const auto whole = static_cast<size_t>(exponent + 1);
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  return formatted("{}{}.{}", sign, digits.substr(0, whole),
                   digits.size() > whole ? digits.substr(whole) : "0");
}

}  // namespace plimsoll::jinja
