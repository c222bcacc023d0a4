#include "unicode/utf8.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

const std::string kR = "\xEF\xBF\xBD";  // U+FFFD

TEST(Utf8, invalid_bytes_become_one_replacement_per_maximal_subpart) {
  // Right-hand sides: bytes.decode("utf-8", "replace") of Python.
  EXPECT_EQ(replace_invalid_utf8("a\xFF"
                                 "b"),
            "a" + kR + "b");
  EXPECT_EQ(replace_invalid_utf8("\xC0\x80"), kR + kR);
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), kR + kR + kR);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x91"
                                 "a"),
            kR + "a");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x91"), kR);
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), kR + kR + kR + kR);
  EXPECT_EQ(replace_invalid_utf8("0123456789\xE2\x82\xAC\xE2"), "0123456789\xE2\x82\xAC" + kR);
}

TEST(Utf8, every_code_point_survives_writing_and_reading) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(code, text);
    ASSERT_TRUE(is_valid_utf8(text)) << uint32_t{code};
    ASSERT_EQ(decode_utf8(text.data()).code, code);
    ASSERT_EQ(decode_utf8_before(text.data() + text.size()).bytes, text.size());
  }
}

TEST(Utf8, only_an_unfinished_character_counts_as_unfinished) {
  EXPECT_EQ(unfinished_utf8_bytes(""), 0U);
  EXPECT_EQ(unfinished_utf8_bytes("abc"), 0U);
  EXPECT_EQ(unfinished_utf8_bytes("a\xF0\x9F\x91"), 3U);
  EXPECT_EQ(unfinished_utf8_bytes("a\xE2"), 1U);
  EXPECT_EQ(unfinished_utf8_bytes("a\xE2\x82\xAC"), 0U);
  EXPECT_EQ(unfinished_utf8_bytes("a\xFF"), 0U);
  EXPECT_EQ(unfinished_utf8_bytes("\xED\xA0"), 0U);  // no surrogate can come of it
}

}  // namespace
}  // namespace plimsoll
