#include "passes/name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

constexpr uint32_t kMostSteps = 100'000;  // of one match; names are short

}  // namespace

NamePattern::NamePattern(const std::string& expression, const std::string& given, const char* key)
    : place_(formatted("{}: '{}'", key, given)) {
  int error = 0;
  PCRE2_SIZE at = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                            PCRE2_ANCHORED | PCRE2_NEVER_UTF, &error, &at, nullptr),
              [](void* code) { pcre2_code_free(static_cast<pcre2_code*>(code)); });
  if (code_ != nullptr) return;
  std::array<PCRE2_UCHAR, 256> why{};
  pcre2_get_error_message(error, why.data(), why.size());
  throw UsageError(
      formatted("{} is not a regular expression: {}", place_, reinterpret_cast<const char*>(why.data())));
}

std::optional<std::string> NamePattern::match(const std::string& name) const {
  const std::shared_ptr<pcre2_match_context> limits(pcre2_match_context_create(nullptr),
                                                    pcre2_match_context_free);
  const std::shared_ptr<pcre2_match_data> found(pcre2_match_data_create(2, nullptr), pcre2_match_data_free);
  pcre2_set_match_limit(limits.get(), kMostSteps);
  const int groups =
      pcre2_match(static_cast<const pcre2_code*>(code_.get()), reinterpret_cast<PCRE2_SPTR>(name.data()),
                  name.size(), 0, 0, found.get(), limits.get());
  if (groups == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (groups < 0)
    throw UsageError(formatted("{} takes too many steps to match {}; write a simpler pattern", place_, name));
  const PCRE2_SIZE* places = pcre2_get_ovector_pointer(found.get());
  if (groups == 1 || places[2] == PCRE2_UNSET) return "";
  return name.substr(places[2], places[3] - places[2]);
}

bool is_plain_name(const std::string& name) {
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  return std::all_of(name.begin(), name.end(), plain);
}

bool names_no_block(const std::string& module_end) {
  // The last part of a name is the same in every block.
  const size_t digit = module_end.find_first_of("0123456789");
  return digit == std::string::npos || module_end.find('.', digit) == std::string::npos;
}

}  // namespace plimsoll
