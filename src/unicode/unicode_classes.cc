#include "unicode/unicode_classes.h"

#include <algorithm>
#include <map>
#include <string>

namespace plimsoll {
namespace {

constexpr UnicodeClasses::Range kUnicodeRanges[] = {
#include "unicode/unicode_classes.inc"
};
constexpr TextClasses::Range kTextRanges[] = {
#include "unicode/text_classes.inc"
};

}  // namespace

template <typename Flags>
ClassTable<Flags>::ClassTable(std::span<const Range> ranges) {
  constexpr size_t kBlock = size_t{1} << kShift;
  std::map<std::basic_string<Flags>, uint16_t> known;
  auto range = ranges.begin();
  for (size_t block = 0; block < block_of_.size(); ++block) {
    const auto first = static_cast<char32_t>(block * kBlock);
    const auto last = static_cast<char32_t>(first + kBlock - 1);
    std::basic_string<Flags> content(kBlock, Flags{});
    while (range != ranges.end() && range->last < first) ++range;
    for (auto r = range; r != ranges.end() && r->first <= last; ++r)
      std::fill(content.begin() + (std::max(r->first, first) - first),
                content.begin() + (std::min(r->last, last) - first + 1), r->flags);
    const auto [it, is_new] = known.try_emplace(content, static_cast<uint16_t>(known.size()));
    if (is_new) blocks_.insert(blocks_.end(), content.begin(), content.end());
    block_of_[block] = it->second;
  }
}

template class ClassTable<uint8_t>;
template class ClassTable<uint16_t>;

const UnicodeClasses& unicode_classes() {
  static const UnicodeClasses classes(kUnicodeRanges);
  return classes;
}

const TextClasses& text_classes() {
  static const TextClasses classes(kTextRanges);
  return classes;
}

}  // namespace plimsoll
