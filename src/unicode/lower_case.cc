#include "unicode/lower_case.h"

#include <algorithm>
#include <iterator>

#include "unicode/utf8.h"

namespace plimsoll {
namespace {

// Every step-th character from first to last has its lower case at a distance.
struct Run {
  char32_t first;
  char32_t last;
  uint32_t step;
  int32_t distance;
};
constexpr Run kRuns[] = {
#include "unicode/lower_case.inc"
};

// The one character whose lower case is two.
constexpr char32_t kDottedCapitalI = 0x130;
constexpr std::string_view kDottedI = "i\xCC\x87";

char32_t lower(char32_t code) {
  const Run* run = std::partition_point(std::begin(kRuns), std::end(kRuns),
                                        [code](const Run& r) { return r.last < code; });
  if (run == std::end(kRuns) || code < run->first || (code - run->first) % run->step != 0) return code;
  return static_cast<char32_t>(static_cast<int32_t>(code) + run->distance);
}

}  // namespace

void append_lower_case(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) < 0x80) {
      out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c);
      ++i;
      continue;
    }
    const Utf8Char next = decode_utf8(text.data() + i);
    const char32_t low = lower(next.code);
    if (next.code == kDottedCapitalI)
      out += kDottedI;
    else if (low == next.code)
      out += text.substr(i, next.bytes);
    else
      append_utf8(low, out);
    i += next.bytes;
  }
}

}  // namespace plimsoll
