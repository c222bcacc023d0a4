#include "text/unicode_classes.h"

#include <algorithm>
#include <map>
#include <string>

namespace plimsoll {
namespace {

struct Range {
  char32_t first;
  char32_t last;
  uint8_t classes;
};
constexpr Range kRanges[] = {
#include "text/unicode_classes.inc"
};

}  // namespace

const UnicodeClasses& UnicodeClasses::instance() {
  static const UnicodeClasses classes;
  return classes;
}

UnicodeClasses::UnicodeClasses() {
  constexpr size_t kBlock = size_t{1} << kShift;
  std::map<std::string, uint16_t> known;
  const Range* range = std::begin(kRanges);
  for (size_t block = 0; block < block_of_.size(); ++block) {
    const auto first = static_cast<char32_t>(block * kBlock);
    const auto last = static_cast<char32_t>(first + kBlock - 1);
    std::string content(kBlock, 0);
    while (range != std::end(kRanges) && range->last < first) ++range;
    for (const Range* r = range; r != std::end(kRanges) && r->first <= last; ++r)
      std::fill(content.begin() + (std::max(r->first, first) - first),
                content.begin() + (std::min(r->last, last) - first + 1), static_cast<char>(r->classes));
    const auto [it, is_new] = known.try_emplace(content, static_cast<uint16_t>(known.size()));
    if (is_new) blocks_.insert(blocks_.end(), content.begin(), content.end());
    block_of_[block] = it->second;
  }
}

}  // namespace plimsoll
