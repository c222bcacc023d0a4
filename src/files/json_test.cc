#include "files/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "files/json_values.h"
#include "files/test_folder.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

TEST(Json, nesting_beyond_the_limit_is_refused) {
  const std::string deep(200'000, '[');
  EXPECT_EQ(message_of<DamagedError>([&] { parse_json(deep, "c.json"); }),
            "c.json: is nested deeper than 64 levels.");
  EXPECT_NO_THROW(parse_json("[[[1]]]", "c.json", {.max_depth = 3}));
  EXPECT_THROW(parse_json("[[[[1]]]]", "c.json", {.max_depth = 3}), DamagedError);
}

TEST(Json, a_key_named_twice_is_refused_where_asked) {
  constexpr std::string_view text = R"({"a": {"x": 1}, "b": {"x": 1}, "a": 2})";
  EXPECT_EQ(parse_json(text, "c.json")["a"], 2);
  EXPECT_EQ(message_of<DamagedError>([&] { parse_json(text, "c.json", {.unique_keys = true}); }),
            "c.json: names 'a' twice.");
}

TEST(Json, members_are_read_alone) {
  const std::vector<std::string> names = {"b", "a", "missing"};
  const std::string beside = "[" + std::string(60, '[') + std::string(60, ']') + ",{\"a\":7,\"b\":8}]";
  const auto values = parse_members(
      R"({"x":)" + beside + R"(, "a": {"z":1,"y":[2,{"k":null}]}, "b": [true,-3,4.5,"t"], "a2": 5})", names,
      "d.jsonl:3");
  ASSERT_EQ(values.size(), 3U);
  EXPECT_EQ(values[0].dump(), R"([true,-3,4.5,"t"])");
  EXPECT_EQ(values[1].dump(), R"({"z":1,"y":[2,{"k":null}]})");
  EXPECT_TRUE(values[2].is_null());
  EXPECT_EQ(parse_members(R"({"a":[1,2],"a":"last"})", names, "d")[1], "last");
  EXPECT_EQ(message_of<DamagedError>([&] { parse_members("[1]", names, "d.jsonl:3"); }),
            "d.jsonl:3: is an array, not an object.");
  EXPECT_EQ(message_of<DamagedError>([&] { parse_members("7", names, "d.jsonl:3"); }),
            "d.jsonl:3: is a number, not an object.");
  EXPECT_EQ(
      message_of<DamagedError>([&] { parse_members(R"({"x":)" + std::string(90, '[') + "}", names, "d"); }),
      "d: is nested deeper than 64 levels.");
  EXPECT_THAT(message_of<DamagedError>([&] { parse_members(R"({"a":1,)", names, "d"); }),
              HasSubstr("d: is not valid JSON: "));
}

TEST(Json, ordered_values_have_bounds_that_name_themselves) {
  EXPECT_EQ(parse_ordered_json(R"({"z":1,"a":{"c":2,"b":3},"z":4})", "d").dump(),
            R"({"z":4,"a":{"c":2,"b":3}})");
  EXPECT_EQ(message_of<DamagedError>([] { parse_ordered_json("[1,2,3]", "d", {.max_values = 3}); }),
            "d: has more than 3 values.");
  EXPECT_NO_THROW(parse_ordered_json("[1,2]", "d", {.max_values = 3}));
  EXPECT_EQ(message_of<DamagedError>([] { parse_ordered_json(R"({"a":1,"b":2})", "d", {.max_keys = 1}); }),
            "d: has an object of more than 1 keys.");
  // Values other than the members that are read do not count.
  EXPECT_NO_THROW(
      parse_members(R"({"x":[1,2,3,4],"a":5})", std::vector<std::string>{"a"}, "d", {.max_values = 1}));
}

TEST(Json, an_error_says_where_in_the_text) {
  const std::string message = message_of<DamagedError>([] { parse_json("{\"a\": 1,\n oops}", "c.json"); });
  EXPECT_THAT(message, HasSubstr("c.json: is not valid JSON: parse error at line 2, column 2"));
}

TEST(Json, a_file_beyond_the_size_limit_is_refused_unread) {
  const TestFolder folder;
  const auto path = folder.write("big.json", std::string(2000, ' '));
  EXPECT_EQ(message_of<UsageError>([&] { read_json(path, 1000); }),
            path.string() + ": is 1.95 KiB long, at most 1000 B are read.");
}

TEST(Json, an_error_is_short_and_readable_whatever_the_text_is) {
  const auto message = [](const std::string& text) {
    return message_of<DamagedError>([&] { parse_json(text, "c.json"); });
  };
  EXPECT_THAT(message("\"\xFF\xFE\""), HasSubstr("ill-formed UTF-8 byte; last read: '\"?'"));
  EXPECT_THAT(message("\"caf\u00e9"), HasSubstr("caf\u00e9"));
  for (const size_t before : {0, 1}) {  // a cut within a character
    std::string accents;
    for (int i = 0; i < 1000; ++i) accents += "\u00e9";
    const std::string cut = message("\"" + std::string(before, 'a') + accents);
    EXPECT_LT(cut.size(), 400);
    EXPECT_THAT(cut, HasSubstr("\u00e9..."));
  }
}

// Long strings are parsed apart, by pieces that cut no character and no escape.
TEST(Json, long_strings_are_what_the_library_reads) {
  const std::vector<std::string> parts = {"a",      "\\n",    "\\u0041",    "\\ud83d\\ude00",
                                          "\u00e9", "\u4e2d", "\U0001F600", "\\\"",
                                          "\\\\",   "\\/",    " : ",        "{[,"};
  uint32_t random = 7;
  const auto draw = [&] { return (random = random * 1664525U + 1013904223U) >> 16U; };
  for (int round = 0; round < 8; ++round) {
    std::string text, escapes;
    for (int i = 0; i < 60'000; ++i) text += parts[draw() % parts.size()];
    while (escapes.size() < 200'000) escapes += parts[3];
    const std::string row = R"({"k": ")" + text + R"(", ")" + text + R"(" : ["x", ")" + escapes +
                            R"(", {"deep": ")" + std::string(70'000, 'b') + R"("}], "s": "t"})";
    const auto expected = nlohmann::ordered_json::parse(row);
    ASSERT_TRUE(parse_ordered_json(row, "c.json") == expected) << round;
    ASSERT_TRUE(parse_members(row, std::vector<std::string>{"k"}, "c.json")[0] == expected["k"]) << round;
  }
}

TEST(Json, what_is_wrong_in_or_behind_a_long_string_is_said_as_of_any) {
  const std::string good(100'000, 'a');
  for (const char* bad : {"\\x", "\xFF", "\n", "\\ud83d", "\\ud83dzzzzzzz", "\\u12g"})
    for (const std::string& row :
         {"{\"k\":\"" + good + bad + good + "\"}", "{\"k\":\"" + good + bad + "\"}"}) {
      std::string expected;
      try {
        ADD_FAILURE() << nlohmann::ordered_json::parse(row).size();
      } catch (const nlohmann::json::exception& error) {
        expected = reason_of(error);
      }
      ASSERT_FALSE(expected.empty());
      EXPECT_EQ(message_of<DamagedError>([&] { parse_ordered_json(row, "c.json"); }),
                "c.json: is not valid JSON: " + expected + ".");
    }
  for (const std::string end : {"}", "\"", "\",", "\"]", "\"} x"})
    EXPECT_THAT(message_of<DamagedError>([&] { parse_ordered_json("{\"k\":\"" + good + end, "c.json"); }),
                HasSubstr("c.json: is not valid JSON: "))
        << end;
}

TEST(Json, a_whole_number_is_neither_cut_nor_wrapped) {
  const auto read = [](const char* text) { return get_whole<int32_t>(nlohmann::json::parse(text)); };
  EXPECT_EQ(read("-7"), -7);
  EXPECT_EQ(get_whole<uint64_t>(nlohmann::json::parse("18446744073709551615")), UINT64_MAX);
  for (const char* text : {"1.5", "1.0", "1e3", "true", "\"1\"", "null", "2147483648", "4294967297"})
    EXPECT_THAT(message_of<DamagedError>([&] { read_values("a.json", [&] { return read(text); }); }),
                HasSubstr(std::string("a.json: must be a whole number, but is ")))
        << text;
  EXPECT_EQ(get_wholes<int>(nlohmann::json::parse("[1, 2]")), (std::vector<int>{1, 2}));
  for (const char* text : {"[1, 2.5]", "7", "{}"})
    EXPECT_THROW(get_wholes<int>(nlohmann::json::parse(text)), nlohmann::json::exception) << text;
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_THROW(get_whole<int>(nlohmann::json::parse(deep)), nlohmann::json::exception);
}

TEST(Json, values_that_are_missing_or_of_another_type_are_damage_with_its_place) {
  const nlohmann::json value = {{"r", "eight"}};
  EXPECT_THAT(
      message_of<DamagedError>([&] { read_values("a.json", [&] { return value.at("r").get<int>(); }); }),
      HasSubstr("a.json: type must be number, but is string"));
  EXPECT_THAT(message_of<DamagedError>([&] { read_values("a.json", [&] { return value.at("alpha"); }); }),
              HasSubstr("a.json: key 'alpha' not found"));
}

}  // namespace
}  // namespace plimsoll
