// Tests of texts that a pattern and values make.
#include "base/format.h"

#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace plimsoll {
namespace {

TEST(Format, texts_characters_and_whole_numbers_stand_in_the_places_of_a_pattern) {
  const std::string path = "rows.jsonl";
  const std::string_view kind = "text";
  const char* const where = "line";
  EXPECT_EQ(formatted("{}: {} {} holds {} of {}{}", path, where, size_t{7}, kind, -3, '.'),
            "rows.jsonl: line 7 holds text of -3.");
  EXPECT_EQ(formatted("{} and {}", std::numeric_limits<int64_t>::min(), std::numeric_limits<uint64_t>::max()),
            "-9223372036854775808 and 18446744073709551615");
  EXPECT_EQ(formatted("no value"), "no value");
}

TEST(Format, doubled_braces_are_braces_and_those_of_values_stay) {
  EXPECT_EQ(formatted("{{% {} %}}", "{}"), "{% {} %}");
}

TEST(Format, a_text_with_a_null_byte_stays_whole) {
  EXPECT_EQ(formatted("<{}>", std::string("a\0b", 3)), std::string("<a\0b>", 5));
}

TEST(Format, what_could_be_meant_in_two_ways_is_no_value) {
  EXPECT_FALSE((std::constructible_from<FormatValue, double>));
  EXPECT_FALSE((std::constructible_from<FormatValue, bool>));
  EXPECT_FALSE((std::constructible_from<FormatValue, int8_t>));
  EXPECT_FALSE((std::constructible_from<FormatValue, uint8_t>));
  EXPECT_TRUE((std::constructible_from<FormatValue, char>));
  EXPECT_TRUE((std::constructible_from<FormatValue, int16_t>));
  EXPECT_TRUE((std::constructible_from<FormatValue, const char*>));
}

}  // namespace
}  // namespace plimsoll
