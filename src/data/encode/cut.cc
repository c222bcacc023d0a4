#include "data/encode/cut.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

void cut_ids(const CutRule& rule, std::vector<int32_t>& ids) {
  const auto excess = static_cast<std::ptrdiff_t>(ids.size()) - rule.max_length;
  if (excess <= 0) return;  // a text that is scored has no labels
  if (rule.truncation == Truncation::right)
    ids.resize(static_cast<size_t>(rule.max_length));
  else
    ids.erase(ids.begin(), ids.begin() + excess);
}

// Loses `count` tokens at an end.
void lose(int64_t count, Truncation truncation, std::vector<int32_t>& ids) {
  if (truncation == Truncation::left)
    ids.erase(ids.begin(), ids.begin() + count);
  else
    ids.resize(ids.size() - static_cast<size_t>(count));
}

}  // namespace

void cut_sequence(const CutRule& rule, const Where& where, Example& example) {
  if (static_cast<int64_t>(example.ids.size()) <= rule.max_length) return;
  switch (rule.truncation) {
    case Truncation::left:
    case Truncation::right:
      cut_ids(rule, example.ids);
      cut_ids(rule, example.labels);
      return;
    case Truncation::drop:
      example.ids.clear();
      example.labels.clear();
      return;
    case Truncation::refuse:
      refuse_long(rule, std::ssize(example.ids), where);
  }
}

void refuse_long(const CutRule& rule, int64_t tokens, const Where& where) {
  throw DamagedError(
      formatted("{}: has {} tokens, more than data.max_length: {}, and data.truncation is refuse.", where(),
                tokens, rule.max_length));
}

void cut_pair(int64_t room, Truncation truncation, std::vector<int32_t>& first,
              std::vector<int32_t>& second) {
  if (std::ssize(first) + std::ssize(second) <= room) return;
  std::vector<int32_t>& shorter = first.size() > second.size() ? second : first;
  std::vector<int32_t>& longer = first.size() > second.size() ? first : second;
  int64_t short_length = std::ssize(shorter), long_length = std::max(short_length, room - short_length);
  if (short_length + long_length > room) {
    short_length = room / 2;
    long_length = room - short_length;
  }
  lose(std::ssize(shorter) - short_length, truncation, shorter);
  lose(std::ssize(longer) - long_length, truncation, longer);
}

void cut_text(int64_t length, Truncation truncation, bool ends, std::vector<int32_t>& ids) {
  const auto have = static_cast<int64_t>(ids.size());
  if (have <= length) return;
  const int32_t last = ids.back();
  if (truncation == Truncation::left)
    ids.erase(ids.begin(), ids.begin() + (have - length));
  else
    ids.resize(static_cast<size_t>(length));
  if (ends) ids.back() = last;
}

}  // namespace plimsoll
