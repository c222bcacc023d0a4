#include "unicode/grapheme.h"

#include <unicode/uchar.h>

#include "unicode/unicode_classes.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

int break_class(char32_t code) {
  const int value = u_getIntPropertyValue(static_cast<UChar32>(code), UCHAR_GRAPHEME_CLUSTER_BREAK);
  // Marks younger than ICU's tables.
  if (value == U_GCB_OTHER && (unicode_classes()[code] & kMark) != 0 &&
      u_charType(static_cast<UChar32>(code)) == U_UNASSIGNED)
    return U_GCB_EXTEND;
  return value;
}

bool is_pictograph(char32_t code) {
  return u_hasBinaryProperty(static_cast<UChar32>(code), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
}

bool is_control(int c) { return c == U_GCB_CONTROL || c == U_GCB_CR || c == U_GCB_LF; }

// Rules GB6 to GB8: syllables of conjoining jamo stay together.
bool joins_hangul(int left, int right) {
  if (left == U_GCB_L) return right == U_GCB_L || right == U_GCB_V || right == U_GCB_LV || right == U_GCB_LVT;
  if (left == U_GCB_LV || left == U_GCB_V) return right == U_GCB_V || right == U_GCB_T;
  return (left == U_GCB_LVT || left == U_GCB_T) && right == U_GCB_T;
}

}  // namespace

size_t grapheme_bytes(std::string_view text) {
  const Utf8Char first = decode_utf8(text.data());
  size_t end = first.bytes;
  int left = break_class(first.code);
  bool picture = is_pictograph(first.code);  // a pictograph, then only marks and joiners (GB11)
  bool lone_flag = left == U_GCB_REGIONAL_INDICATOR;
  while (end < text.size()) {
    const Utf8Char next = decode_utf8(text.data() + end);
    const int right = break_class(next.code);
    bool joins = false;
    if (is_control(left) || is_control(right)) {
      joins = left == U_GCB_CR && right == U_GCB_LF;
    } else if (right == U_GCB_EXTEND || right == U_GCB_ZWJ || right == U_GCB_SPACING_MARK ||
               left == U_GCB_PREPEND || joins_hangul(left, right)) {
      joins = true;
    } else if (left == U_GCB_ZWJ) {
      joins = picture && is_pictograph(next.code);
    } else if (right == U_GCB_REGIONAL_INDICATOR) {
      joins = lone_flag && left == U_GCB_REGIONAL_INDICATOR;
    }
    if (!joins) break;
    lone_flag = right == U_GCB_REGIONAL_INDICATOR && left != U_GCB_REGIONAL_INDICATOR;
    picture = is_pictograph(next.code) || (picture && (right == U_GCB_EXTEND || right == U_GCB_ZWJ));
    left = right;
    end += next.bytes;
  }
  return end;
}

}  // namespace plimsoll
