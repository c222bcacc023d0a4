#define PCRE2_CODE_UNIT_WIDTH 8
#include "unicode/regex.h"

#include <pcre2.h>

#include <array>
#include <sstream>

#include "base/error.h"
#include "unicode/text_error.h"

namespace plimsoll {
namespace {

[[noreturn]] void refuse(std::string_view expression, const std::string& where, std::string_view what) {
  throw UsageError(where + ": the regular expression \"" + std::string(expression) + "\" uses " +
                   std::string(what) + ", which is not supported in an expression Plimsoll does not know");
}

// Escapes that mean the same in both engines under PCRE2_UTF | PCRE2_UCP.
constexpr std::string_view kSharedEscapes = "dDrntfvAzZ";

// Characters younger than Unicode 14, the version of PCRE2 10.42, by the letter of their major category.
struct YoungRange {
  char32_t first;
  char32_t last;
  char category;
};
constexpr YoungRange kYoung[] = {
#include "unicode/unicode_after_14.inc"
};

// "\p{L}" with the younger letters added, as members of a class; empty for a category without additions.
std::string complete_property(std::string_view property) {
  if (property.size() != 1) return {};
  std::ostringstream members;
  members << std::hex;
  for (const YoungRange& range : kYoung)
    if (range.category == property[0])
      members << "\\x{" << uint32_t{range.first} << "}-\\x{" << uint32_t{range.last} << '}';
  return members.str().empty() ? std::string() : "\\p{" + std::string(property) + "}" + members.str();
}

// Translates \p{..} or \P{..} at `text`; returns how many characters it took.
size_t append_property(std::string_view text, bool in_class, std::string& out) {
  const size_t close = text.find('}');
  const std::string members = text.size() > 3 && text[2] == '{' && close != text.npos
                                  ? complete_property(text.substr(3, close - 3))
                                  : "";
  const bool negated = text[1] == 'P';
  // A negated property inside a class cannot be completed by adding members.
  if (members.empty() || (negated && in_class)) {
    out += text.substr(0, 2);
    return 2;
  }
  out += in_class ? members : (negated ? "[^" : "[") + members + "]";
  return close + 1;
}

const pcre2_code* code_of(const std::shared_ptr<void>& code) {
  return static_cast<const pcre2_code*>(code.get());
}

// The interpreter keeps about 150 bytes for every turn of a loop over groups: enough for words of 200,000
// letters.
constexpr uint32_t kMostHeapKiB = 32 << 10;

// Limits on the backtracks of one match, tried one after the other: PCRE2 does not report otherwise how many
// a match took.
constexpr std::array<uint32_t, 5> kTries = {1'000, 10'000, 100'000, 1'000'000, 10'000'000};

std::shared_ptr<void> make_limits(uint32_t backtracks) {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_heap_limit(context, kMostHeapKiB);
  pcre2_set_match_limit(context, backtracks);
  return {context, [](void* c) { pcre2_match_context_free(static_cast<pcre2_match_context*>(c)); }};
}

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

std::string translate_to_pcre2(std::string_view expression, const std::string& where) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    const char next = i + 1 < expression.size() ? expression[i + 1] : '\0';
    if (c == '\\' && (next == 'p' || next == 'P')) {
      i += append_property(expression.substr(i), in_class, out) - 1;
      continue;
    }
    if (c == '\\') {
      ++i;
      // The 25 characters of White_Space: PCRE2's own \s adds U+180E.
      if (next == 's') {
        out += "\\p{White_Space}";
      } else if (next == 'S') {
        out += "\\P{White_Space}";
      } else {
        const bool alphanumeric = (next >= '0' && next <= '9') || (next >= 'a' && next <= 'z') ||
                                  (next >= 'A' && next <= 'Z') || next == '\0';
        if (alphanumeric && kSharedEscapes.find(next) == std::string_view::npos)
          refuse(expression, where, std::string("\\") + next);
        (out += c) += next;
      }
      continue;
    }
    if (in_class) {
      if (c == '[') refuse(expression, where, "a character class inside a class");
      if (c == '&' && next == '&') refuse(expression, where, "the class operator &&");
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '(' && next == '?') {
      const std::string_view group = expression.substr(i + 2);
      if (!group.starts_with(':') && !group.starts_with('=') && !group.starts_with('!') &&
          !group.starts_with('>') && !group.starts_with("i:") && !group.starts_with("<=") &&
          !group.starts_with("<!"))
        refuse(expression, where, "a group (?" + std::string(group.substr(0, 1)));
    } else if (c == '}' && next == '+') {
      refuse(expression, where, "{..}+");
    }
    out += c;
  }
  return out;
}

Regex::Regex(std::string_view expression, const std::string& where) : where_(where) {
  const std::string pattern = translate_to_pcre2(expression, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Ruby's ^ and $ match at every line.
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK, &error, &offset, nullptr);
  if (code == nullptr)
    throw UsageError(where + ": the regular expression \"" + std::string(expression) +
                     "\" does not compile: " + message_of(error));
  code_ = std::shared_ptr<void>(code, [](void* c) { pcre2_code_free(static_cast<pcre2_code*>(c)); });
  for (const uint32_t backtracks : kTries) limits_.push_back(make_limits(backtracks));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT the interpreter gives the same matches
}

void Regex::for_each_match(std::string_view text, const std::function<void(size_t, size_t)>& found) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code_of(code_), nullptr), &pcre2_match_data_free);
  if (!match) throw std::bad_alloc();
  const auto give_up = [&](const std::string& why) {
    throw TextError(where_ + ": the regular expression gives up on a text of " + std::to_string(text.size()) +
                    " bytes: " + why);
  };
  const auto match_with = [&](size_t start, size_t limit, uint32_t options) {
    return pcre2_match(code_of(code_), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                       PCRE2_NO_UTF_CHECK | options, match.get(),
                       static_cast<pcre2_match_context*>(limits_[limit].get()));
  };
  // Limit on matches that are not cheap, all together, so that time stays linear in the text.
  size_t left = kTries.back() + 1000 * text.size();
  const auto match_from = [&](size_t start) {
    for (size_t limit = 0;; ++limit) {
      if (limit > 0 && left < kTries[limit]) give_up("its matches take too many backtracks together");
      if (limit > 0) left -= kTries[limit];
      int rc = match_with(start, limit, 0);
      // The compiled code has 32 KiB of stack, which a loop over groups fills within a long word.
      if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match_with(start, limit, PCRE2_NO_JIT);
      if (rc != PCRE2_ERROR_MATCHLIMIT || limit + 1 == kTries.size()) return rc;
    }
  };
  size_t start = 0;
  while (start <= text.size()) {
    const int rc = match_from(start);
    if (rc == PCRE2_ERROR_NOMATCH) return;
    if (rc < 0) give_up(message_of(rc));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    if (range[1] > range[0]) {
      found(range[0], range[1]);
      start = range[1];
      continue;
    }
    // An empty match: continue behind the next character.
    start = range[1] + 1;
    while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) ++start;
  }
}

bool Regex::matches_nothing() const {
  uint32_t possible = 0;
  pcre2_pattern_info(code_of(code_), PCRE2_INFO_MATCHEMPTY, &possible);
  return possible != 0;
}

int64_t Regex::resident_bytes() const {
  size_t code = 0;
  size_t jit = 0;
  pcre2_pattern_info(code_of(code_), PCRE2_INFO_SIZE, &code);
  pcre2_pattern_info(code_of(code_), PCRE2_INFO_JITSIZE, &jit);
  return static_cast<int64_t>(code + jit);
}

}  // namespace plimsoll
