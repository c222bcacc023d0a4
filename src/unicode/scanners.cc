#include "unicode/scanners.h"

#include <array>
#include <string>
#include <utility>

#include "unicode/unicode_classes.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

constexpr std::array<std::pair<std::string_view, KnownRegex>, 5> kKnown = {{
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", KnownRegex::gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     KnownRegex::qwen2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     KnownRegex::qwen35},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     KnownRegex::llama3},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
     R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     KnownRegex::tekken},
}};

bool is_newline(char c) { return c == '\r' || c == '\n'; }

// A position in valid UTF-8 text is a pointer to the start of a character, or end().
class Scanner {
 public:
  explicit Scanner(std::string_view text) : end_(text.data() + text.size()) {}

  const char* gpt2(const char* p) const {
    if (const char* q = contraction(p, false)) return q;
    const char* word = p + (*p == ' ');
    const uint8_t classes = at(word).classes;
    if ((classes & kLetter) != 0) return run(word, kLetter);
    if ((classes & kNumber) != 0) return run(word, kNumber);
    if (const char* q = run_outside(word, kSpace | kLetter | kNumber); q != word) return q;
    return whitespace(p, false);
  }

  const char* qwen_or_llama(const char* p, uint8_t letters, int max_digits) const {
    if (const char* q = contraction(p, true)) return q;
    const Char first = at(p);
    if ((first.classes & letters) != 0) return run(p, letters);
    if ((first.classes & kNumber) != 0) return digits(p, max_digits);
    const char* second = p + first.bytes;
    if (!is_newline(*p) && (at(second).classes & letters) != 0) return run(second, letters);
    if (const char* q = symbols(p, letters)) return skip_newlines(q);
    return whitespace(p, true);
  }

  const char* tekken(const char* p) const {
    const Char first = at(p);
    // Greedy optionals are tried with the leading character first, then without: the order decides.
    const bool may_lead = (first.classes & (kLetter | kNumber)) == 0 && !is_newline(*p);
    const char* second = p + first.bytes;
    const char* q = may_lead ? word_with_lower_end(second) : nullptr;
    if (q == nullptr) q = word_with_lower_end(p);
    if (q == nullptr && may_lead) q = word_with_upper_start(second);
    if (q == nullptr) q = word_with_upper_start(p);
    if (q != nullptr) return q;
    if ((first.classes & kNumber) != 0) return second;
    q = symbols(p, kLetter);
    if (q == nullptr) return whitespace(p, true);
    while (q != end_ && (is_newline(*q) || *q == '/')) ++q;
    return q;
  }

 private:
  struct Char {
    uint8_t classes;
    uint32_t bytes;
  };

  // No class and no bytes at the end of the text, so that every run stops there.
  Char at(const char* p) const {
    if (p == end_) return {0, 0};
    const Utf8Char c = decode_utf8(p);
    return {classes_[c.code], c.bytes};
  }

  const char* run(const char* p, unsigned mask) const {
    for (Char c = at(p); (c.classes & mask) != 0; c = at(p)) p += c.bytes;
    return p;
  }
  const char* run_outside(const char* p, unsigned mask) const {
    for (Char c = at(p); c.bytes != 0 && (c.classes & mask) == 0; c = at(p)) p += c.bytes;
    return p;
  }
  const char* skip_newlines(const char* p) const {
    while (p != end_ && is_newline(*p)) ++p;
    return p;
  }
  const char* digits(const char* p, int max_digits) const {
    for (Char c = at(p); max_digits > 0 && (c.classes & kNumber) != 0; c = at(p), --max_digits) p += c.bytes;
    return p;
  }

  // 's 't 're 've 'm 'll 'd; null where none stands.
  const char* contraction(const char* p, bool any_case) const {
    if (*p != '\'' || end_ - p < 2) return nullptr;
    const auto fold = [any_case](char c) {
      return any_case && c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c;
    };
    const char first = fold(p[1]);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return p + 2;
    if (end_ - p < 3) return nullptr;
    if (any_case && p[1] == '\xC5' && p[2] == '\xBF') return p + 3;  // U+017F, the long s, folds to s
    const char second = fold(p[2]);
    const bool found = (second == 'e' && (first == 'r' || first == 'v')) || (first == 'l' && second == 'l');
    return found ? p + 3 : nullptr;
  }

  // " ?[^\s L N]+", where `letters` are the L; null where it does not match.
  const char* symbols(const char* p, uint8_t letters) const {
    const char* first = p + (*p == ' ');
    const char* q = run_outside(first, unsigned{kSpace} | kNumber | letters);
    return q == first ? nullptr : q;
  }

  // "\s*[\r\n]+" if `newlines_first`, then "\s+(?!\S)", then "\s+". The first ends at the last newline of the
  // run; the second leaves the run's last character to the word behind it, if the run has another one.
  const char* whitespace(const char* p, bool newlines_first) const {
    const char* last = p;
    const char* after_newline = nullptr;
    const char* q = p;
    for (Char c = at(q); (c.classes & kSpace) != 0; c = at(q)) {
      last = q;
      if (is_newline(*q)) after_newline = q + 1;
      q += c.bytes;
    }
    if (newlines_first && after_newline != nullptr) return after_newline;
    return q == end_ || last == p ? q : last;
  }

  // "U*W+" with U = kUpperRun and W = kLowerRun, which share modifiers, other letters and marks: U* gives
  // back characters until one of W follows.
  const char* word_with_lower_end(const char* p) const {
    const char* after_shared = nullptr;
    for (Char c = at(p); (c.classes & kUpperRun) != 0; c = at(p)) {
      p += c.bytes;
      if ((c.classes & kLowerRun) != 0) after_shared = p;
    }
    return (at(p).classes & kLowerRun) != 0 ? run(p, kLowerRun) : after_shared;
  }
  // "U+W*"
  const char* word_with_upper_start(const char* p) const {
    const char* q = run(p, kUpperRun);
    return q == p ? nullptr : run(q, kLowerRun);
  }

  const UnicodeClasses& classes_ = unicode_classes();
  const char* end_;
};

template <typename Next>
size_t scan_with(std::string_view text, std::vector<std::string_view>& out, size_t most, Next next) {
  const char* const end = text.data() + text.size();
  const char* p = text.data();
  for (; p != end && most > 0; --most) {
    const char* q = next(p);
    out.emplace_back(p, static_cast<size_t>(q - p));
    p = q;
  }
  return static_cast<size_t>(p - text.data());
}

}  // namespace

std::optional<KnownRegex> known_regex(std::string_view regex) {
  // Some files hold the line ends themselves where others hold their escapes.
  std::string escaped;
  for (const char c : regex) {
    if (is_newline(c))
      escaped += c == '\r' ? "\\r" : "\\n";
    else
      escaped += c;
  }
  for (const auto& [text, known] : kKnown)
    if (text == escaped) return known;
  return std::nullopt;
}

size_t scan(KnownRegex regex, std::string_view text, std::vector<std::string_view>& out, size_t most) {
  const Scanner s(text);
  switch (regex) {
    case KnownRegex::gpt2:
      return scan_with(text, out, most, [&s](const char* p) { return s.gpt2(p); });
    case KnownRegex::qwen2:
      return scan_with(text, out, most, [&s](const char* p) { return s.qwen_or_llama(p, kLetter, 1); });
    case KnownRegex::qwen35:
      return scan_with(text, out, most,
                       [&s](const char* p) { return s.qwen_or_llama(p, kLetter | kMark, 1); });
    case KnownRegex::llama3:
      return scan_with(text, out, most, [&s](const char* p) { return s.qwen_or_llama(p, kLetter, 3); });
    case KnownRegex::tekken:
      return scan_with(text, out, most, [&s](const char* p) { return s.tekken(p); });
  }
  return text.size();
}

}  // namespace plimsoll
