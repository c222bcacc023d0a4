#include "fleet/doctor/expression.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <new>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll::doctor {
namespace {

// Limits of one search in a text of a few KiB; a text that needs more is no message of ours.
constexpr uint32_t kMostMatchSteps = 200'000;
constexpr uint32_t kMostHeapKiB = 1 << 10;

// The expression for {name:kind}. A number that a line break fell into has a blank between two digits.
std::string_view form_of(std::string_view kind) {
  if (kind == "size") return "[0-9][0-9.,\\ ]*(?:bytes|[KMGTP]i?[Bb]|kB|B)";
  if (kind == "count") return "[0-9]+";
  if (kind == "number") return "[0-9][0-9\\ ]*";
  if (kind == "share") return "[0-9]+(?:\\.[0-9]+)?%?";
  if (kind == "word") return "[^\\s\"'`(),;:]+";
  throw InternalError(formatted("doctor: no kind of figure '{}'", kind));
}

std::string expanded(std::string_view text) {
  std::string out;
  for (;;) {
    const size_t open = text.find('{');
    if (open == text.npos) return out.append(text);
    const size_t colon = text.find(':', open);
    if (open + 1 < text.size() && (text[open + 1] < 'a' || text[open + 1] > 'z')) {  // a count of repetitions
      out.append(text.substr(0, open + 1));
      text.remove_prefix(open + 1);
      continue;
    }
    check_internal(colon != text.npos, "doctor: '{' without ':'");
    const size_t close = text.find('}', colon);
    out.append(text.substr(0, open)).append("(?<").append(text.substr(open + 1, colon - open - 1));
    out.append(">").append(form_of(text.substr(colon + 1, close - colon - 1))).append(")");
    text.remove_prefix(close + 1);
  }
}

const pcre2_code* code_of(const std::shared_ptr<void>& code) {
  return static_cast<const pcre2_code*>(code.get());
}

std::shared_ptr<pcre2_match_context> limits() {
  std::shared_ptr<pcre2_match_context> context(pcre2_match_context_create(nullptr), pcre2_match_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), kMostMatchSteps);
  pcre2_set_depth_limit(context.get(), kMostMatchSteps);
  pcre2_set_heap_limit(context.get(), kMostHeapKiB);
  return context;
}

Expression::Groups named_groups(const pcre2_code* code, pcre2_match_data* match, std::string_view text) {
  uint32_t count = 0;
  uint32_t entry = 0;
  PCRE2_SPTR table = nullptr;
  pcre2_pattern_info(code, PCRE2_INFO_NAMECOUNT, &count);
  pcre2_pattern_info(code, PCRE2_INFO_NAMEENTRYSIZE, &entry);
  pcre2_pattern_info(code, PCRE2_INFO_NAMETABLE, &table);
  const PCRE2_SIZE* ranges = pcre2_get_ovector_pointer(match);
  Expression::Groups groups;
  for (uint32_t i = 0; i < count; ++i, table += entry) {
    const size_t group = static_cast<size_t>(table[0]) << 8U | table[1];
    const PCRE2_SIZE begin = ranges[2 * group];
    if (begin == PCRE2_UNSET) continue;
    groups.emplace(reinterpret_cast<const char*>(table + 2),
                   text.substr(begin, ranges[2 * group + 1] - begin));
  }
  return groups;
}

}  // namespace

Expression::Expression(std::string_view text) {
  const std::string pattern = expanded(text);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_EXTENDED | PCRE2_DUPNAMES, &error, &offset, nullptr);
  check_internal(code != nullptr,
                 formatted("doctor: the expression '{}' does not compile at {}", pattern, offset));
  code_ = std::shared_ptr<void>(code, [](void* c) { pcre2_code_free(static_cast<pcre2_code*>(c)); });
  pcre2_jit_compile(code,
                    PCRE2_JIT_COMPLETE);  // where there is no JIT the interpreter gives the same matches
}

bool Expression::match_from(std::string_view text, size_t start, Groups& groups, size_t& end) const {
  static const std::shared_ptr<pcre2_match_context> kLimits = limits();
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code_of(code_), nullptr), &pcre2_match_data_free);
  if (!match) throw std::bad_alloc();
  const auto run = [&](uint32_t options) {
    return pcre2_match(code_of(code_), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start, options,
                       match.get(), kLimits.get());
  };
  int rc = run(0);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = run(PCRE2_NO_JIT);
  if (rc < 0) return false;
  groups = named_groups(code_of(code_), match.get(), text);
  end = pcre2_get_ovector_pointer(match.get())[1];
  return true;
}

bool Expression::match(std::string_view text, Groups& groups) const {
  size_t end = 0;
  return match_from(text, 0, groups, end);
}

void Expression::for_each(std::string_view text, size_t most,
                          const std::function<void(const Groups&)>& found) const {
  Groups groups;
  for (size_t start = 0, times = 0; start < text.size() && times < most; ++times) {
    size_t end = 0;
    if (!match_from(text, start, groups, end)) return;
    found(groups);
    start = end > start ? end : start + 1;
  }
}

}  // namespace plimsoll::doctor
