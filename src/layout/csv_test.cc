#include "layout/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace plimsoll::layout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kText =
    "id,lower,upper,size\n"
    "model.layers.0.x,3,18,4096\n"
    "scratch,4,5,0\n";

TEST(LayoutCsv, upper_is_exclusive) {
  const Problem problem = parse_csv(kText, "p.csv", 64);
  EXPECT_EQ(problem.alignment, 64);
  EXPECT_THAT(problem.buffers,
              ElementsAre(Buffer{"model.layers.0.x", 4096, 3, 17}, Buffer{"scratch", 0, 4, 4}));
}

TEST(LayoutCsv, survives_parse_print) { EXPECT_EQ(print_csv(parse_csv(kText, "p.csv", 64)), kText); }

TEST(LayoutCsv, reads_columns_in_any_order_and_dos_line_ends) {
  const Problem problem = parse_csv("size, id, upper, lower\r\n4096,b1,18,3\r\n\r\n", "p.csv", 64);
  EXPECT_THAT(problem.buffers, ElementsAre(Buffer{"b1", 4096, 3, 17}));
}

TEST(LayoutCsv, survives_write_read) {
  const auto path = std::filesystem::path(testing::TempDir()) / "plimsoll_layout_csv_test.csv";
  const Problem problem = parse_csv(kText, "p.csv", 64);
  write_csv(path, problem);
  EXPECT_EQ(read_csv(path, 64).buffers, problem.buffers);
  std::filesystem::remove(path);
}

TEST(LayoutCsv, errors_name_the_file_the_line_and_the_cell) {
  const auto parse = [](const std::string& text) { return [=] { parse_csv(text, "p.csv", 64); }; };
  const auto fails = [](const char* what) { return ThrowsMessage<UsageError>(HasSubstr(what)); };
  const std::string header = "id,lower,upper,size\n";
  EXPECT_THAT(parse(""), fails("p.csv, line 1: the file is empty"));
  EXPECT_THAT(parse("id,lower,upper\n"), fails("line 1: a column is missing"));
  EXPECT_THAT(parse("id,lower,upper,size,gaps\n"), fails("line 1: unknown column \"gaps\""));
  EXPECT_THAT(parse("id,lower,lower,size\n"), fails("column \"lower\" stands twice"));
  EXPECT_THAT(parse(header + "a,0,1\n"), fails("line 2: 3 cells where the header has 4"));
  EXPECT_THAT(parse(header + "a,0,1,8\nb,0,1,8x\n"), fails("line 3: size is \"8x\""));
  EXPECT_THAT(parse(header + "a,-1,1,8\n"), fails("lower is \"-1\""));
  EXPECT_THAT(parse(header + "a,0,2147483648,8\n"), fails("upper is \"2147483648\""));
  EXPECT_THAT(parse(header + "a,0,1,99999999999999999999\n"), fails("size is \"99999999999999999999\""));
  EXPECT_THAT(parse(header + "a,4,4,8\n"), fails("upper is exclusive"));
  EXPECT_THAT(parse(header + ",0,1,8\n"), fails("the id is empty"));
  EXPECT_THAT(parse(header + "a,0,1,72057594037927936\nb,0,1,1\n"),
              fails("line 3: the sizes up to here exceed"));
}

TEST(LayoutCsv, a_missing_file_or_folder_is_named) {
  EXPECT_THAT([] { read_csv("no/such.csv", 64); }, ThrowsMessage<UsageError>(HasSubstr("no/such.csv")));
  EXPECT_THAT([] { read_csv("src/layout", 64); }, ThrowsMessage<UsageError>(HasSubstr("src/layout")));
  EXPECT_THAT([] { write_csv("no/such.csv", Problem{}); },
              ThrowsMessage<StoppedError>(HasSubstr("no/such.csv")));
}

TEST(LayoutCsv, refuses_to_print_what_it_could_not_read_back) {
  const auto print = [](const std::string& name, int32_t last) {
    return [=] { return print_csv({.buffers = {{name, 8, 0, last}}, .alignment = 64}); };
  };
  EXPECT_THAT(print("a,b", 1), ThrowsMessage<UsageError>(HasSubstr("a,b")));
  EXPECT_THAT(print("", 1), ThrowsMessage<UsageError>(HasSubstr("empty id")));
  EXPECT_THAT(print("a", std::numeric_limits<int32_t>::max()),
              ThrowsMessage<UsageError>(HasSubstr("no successor")));
}

}  // namespace
}  // namespace plimsoll::layout
