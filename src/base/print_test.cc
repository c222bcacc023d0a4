#include "base/print.h"

#include <gtest/gtest.h>

#include "base/lines.h"

#include "base/strings.h"

namespace plimsoll {
namespace {

TEST(Lines, breaks_that_are_no_lines_of_a_message_become_visible) {
  EXPECT_EQ(visible_breaks("a\nb: is missing\n  do this\n  and that"),
            "a\\nb: is missing\n  do this\n  and that");
  EXPECT_EQ(visible_breaks("a\r\nerror: b\n"), "a\\r\\nerror: b\\n");
}

TEST(Print, ordinary_text_stays_as_it_is) {
  for (const char* text :
       {"", "model.layers.0.weight", "Größe ½ 你好 👨‍👩‍👧", "C:\\n", "\u200f\u200d"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_EQ(printable_text(text), text);
  }
}

TEST(Print, a_name_is_one_line_and_steers_no_terminal) {
  EXPECT_EQ(printable("a\n\r\tb"), "a\\n\\r\\tb");
  EXPECT_EQ(printable("\033]0;owned\a\033[2J"), "\\u001b]0;owned\\u0007\\u001b[2J");
  EXPECT_EQ(printable("\u009b31m\u007f"), "\\u009b31m\\u007f");
  EXPECT_EQ(printable("gpj\u202egepj.exe\u2066x\u2069"), "gpj\\u202egepj.exe\\u2066x\\u2069");
  EXPECT_EQ(printable("a\u2028b"), "a\\u2028b");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\u0000b");
}

TEST(Print, bytes_that_are_no_utf8_are_shown) {
  EXPECT_EQ(printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");           // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\x9b"), "\\x9b");                    // what 8-bit terminals take for Escape [
  EXPECT_EQ(printable("\xe4\xbd"), "\\xe4\\xbd");
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(Print, a_text_keeps_its_lines) {
  EXPECT_EQ(printable_text("a\n\tb\r\nc\rd\033"), "a\n\tb\r\nc\\rd\\u001b");
}

TEST(Print, cells_of_a_table_are_names) {
  TextTable table;
  table.add_row({"a\nb", "\033[31m"});
  EXPECT_EQ(table.render(), "a\\nb  \\u001b[31m\n");
}

}  // namespace
}  // namespace plimsoll
