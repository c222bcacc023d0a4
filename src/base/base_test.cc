#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/growth.h"
#include "base/heap_peak.h"
#include "base/outer_split.h"
#include "base/regular_file.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/test_slice.h"
#include "base/units.h"

namespace plimsoll {
namespace {

TEST(Units, bytes_read_as_people_write_them) {
  EXPECT_EQ(parse_bytes("8GiB", "x"), 8 * kGiB);
  EXPECT_EQ(parse_bytes("8 GB", "x"), 8'000'000'000);
  EXPECT_EQ(parse_bytes("1.5MiB", "x"), 1'572'864);
  EXPECT_EQ(parse_bytes("77", "x"), 77);
  for (const char* bad : {"", "GiB", "8 apples", "-1GiB", "nan", "1e30TB"})
    EXPECT_THROW(parse_bytes(bad, "x"), UsageError) << bad;
}

TEST(Units, sizes_print_with_three_digits) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes_up(6'882'716'221), "6.42 GiB");
  EXPECT_EQ(format_bytes_up(kGiB), "1.00 GiB");
  for (int64_t bytes = 1; bytes < 1000 * 1024 * kGiB; bytes = bytes * 17 / 16 + 1)
    EXPECT_GE(parse_bytes(format_bytes_up(bytes), "test"), bytes) << bytes;
  EXPECT_EQ(format_bytes(6'882'716'221), "6.41 GiB");
  EXPECT_EQ(format_bytes(40'055'603), "38.2 MiB");
  EXPECT_EQ(format_gib(6'882'716'221), "6.41");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_count(999), "999");
}

TEST(Units, seconds_print_in_the_unit_that_fits) {
  EXPECT_EQ(format_seconds(1.312), "1.31 s");
  EXPECT_EQ(format_seconds(0.042), "42 ms");
  EXPECT_EQ(format_seconds(552), "9:12");
  EXPECT_EQ(format_seconds(11110), "3:05:10");
}

TEST(Strings, nearest_name_suggests_what_was_meant) {
  const std::vector<std::string> names = {"optimizer", "output", "method"};
  EXPECT_EQ(nearest_name("optimiser", names), "optimizer");
  EXPECT_EQ(nearest_name("ouptut", names), "output");
  EXPECT_EQ(nearest_name("zebra", names), "");
  const std::vector<std::string> brief = {"lr", "r", "eps"};
  for (const char* other : {"", "x", "xy", "q"}) EXPECT_EQ(nearest_name(other, brief), "") << other;
  EXPECT_EQ(nearest_name("--dir", std::vector<std::string>{"--lr"}), "");
  EXPECT_EQ(nearest_name("rl", brief), "lr");
  EXPECT_EQ(nearest_name("ep", brief), "eps");
}

TEST(Strings, edit_distance_counts_changes_up_to_its_limit) {
  EXPECT_EQ(edit_distance("kitten", "sitting", 9), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting", 3), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting", 2), 2);
  EXPECT_EQ(edit_distance("abcd", "badc", 3), 2);  // two pairs changed places
  EXPECT_EQ(edit_distance("ab", "ba", 2), 1);
  EXPECT_EQ(edit_distance("xab", "xba", 2), 1);
  EXPECT_EQ(edit_distance("", "abc", 9), 3);
  EXPECT_EQ(edit_distance("", "", 1), 0);
}

TEST(Strings, tables_align_and_leave_no_trailing_blanks) {
  TextTable table({false, true});
  table.add_row({"weights", "2.88"});
  table.add_row({"total", "16.41", "x"});
  table.add_row({"é", "1"});
  EXPECT_EQ(table.render("  "), "  weights   2.88\n  total    16.41  x\n  é            1\n");
}

TEST(OuterSplit, quotes_and_brackets_keep_what_separates) {
  using ::testing::ElementsAre;
  EXPECT_THAT(outer_split("8,[a,b],\"c,d\",{e: 1,f: [2,3]}", ","),
              ElementsAre("8", "[a,b]", "\"c,d\"", "{e: 1,f: [2,3]}"));
  EXPECT_THAT(outer_split("a=1 \t b='x y'", " \t"), ElementsAre("a=1", "", "", "b='x y'"));
  EXPECT_THAT(outer_split("a],b", ","), ElementsAre("a]", "b")) << "one bracket too many opens nothing";
  EXPECT_THAT(outer_split("", ","), ElementsAre(""));
}

TEST(RegularFile, its_end_is_read_and_a_fifo_is_never_waited_for) {
  std::string name = (std::filesystem::temp_directory_path() / "end-XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(name.data());
  std::ofstream(folder / "file") << "0123456789";
  EXPECT_EQ(read_end(folder / "file", 4), "6789");
  EXPECT_EQ(read_end(folder / "file", 100), "0123456789");
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THROW(read_end(folder / "fifo", 4), UsageError);
  EXPECT_THROW(read_end(folder / "none", 4), UsageError);
  std::filesystem::remove_all(folder);
}

TEST(Wrap, breaks_at_blanks_before_the_width_and_counts_characters_not_bytes) {
  EXPECT_EQ(wrap("one two three", "  ", 9), "one two\n  three");
  EXPECT_EQ(wrap("█ █ █", "", 3), "█ █\n█");
  EXPECT_EQ(wrap("unbreakable", "  ", 4), "unbreakable");
  EXPECT_EQ(wrap("", "  ", 4), "");
}

TEST(Screen, lines_break_at_blanks_and_hang_below_their_text) {
  EXPECT_EQ(fitted("  note     one two three four", 20), "  note     one two\n    three four");
  EXPECT_EQ(fitted("  note  one two three four", 20), "  note  one two\n    three four");
  EXPECT_EQ(fitted("a  one two three four five", 14), "a  one two\n   three four\n   five");
  EXPECT_EQ(fitted("short\n\nshort\n", 20), "short\n\nshort\n");
}

TEST(Screen, numbers_stay_with_their_units_and_commands_and_long_words_whole) {
  EXPECT_EQ(fitted("it takes about 12 GiB, more", 17), "it takes about\n  12 GiB, more");
  EXPECT_EQ(fitted("  plimsoll plan recipe.yaml --set a=b", 10), "  plimsoll plan recipe.yaml --set a=b");
  EXPECT_EQ(fitted("at /a/very/long/path/to/it", 10), "at\n  /a/very/long/path/to/it");
}

TEST(Screen, wide_gaps_are_broken_before_single_blanks) {
  EXPECT_EQ(fitted("fits   6 of 8 GiB   host 2 of 9 GiB", 30), "fits   6 of 8 GiB\n       host 2 of 9 GiB");
}

TEST(Screen, columns_are_those_that_the_environment_states) {
  setenv("COLUMNS", "61", 1);
  EXPECT_EQ(output_columns(), 61U);
  setenv("COLUMNS", "many", 1);
  const bool terminal = screen_of(1).is_terminal;
  if (!terminal) {
    EXPECT_EQ(output_columns(), 80U);
  }
  setenv("COLUMNS", "3", 1);
  EXPECT_EQ(output_columns(), 40U);
  unsetenv("COLUMNS");
}

TEST(TextTable, breaks_texts_into_lines_of_their_column_where_it_is_narrow) {
  TextTable table({true, false});
  table.add_row({"7", "what is said of it here at some length"});
  EXPECT_EQ(table.render("  ", 24), "  7  what is said of it\n     here at some length\n");
  EXPECT_EQ(table.render("  "), "  7  what is said of it here at some length\n");
}

TEST(TextTable, leaves_out_columns_that_may_go_and_cuts_texts_where_it_is_asked_to) {
  TextTable table({true, true, false});
  table.add_row({"id", "priority", "name"});
  table.add_row({"1", "100", "a-long-name-of-a-run"});
  table.may_go({1});
  EXPECT_EQ(table.render("", 20), "id  name\n 1  a-long-name-of-\n    a-run\n");
  table.cut_texts();
  EXPECT_EQ(table.render("", 20), "id  name\n 1  a-long-name-of-…\n");
  EXPECT_EQ(table.render("", 40), "id  priority  name\n 1       100  a-long-name-of-a-run\n");
}

TEST(TestSlice, three_slices_are_all_and_each_has_every_value_of_an_inner_loop) {
  std::array<std::array<size_t, 3>, 3> seen = {};
  for (size_t i = 0; i < 27; ++i) {
    size_t slices = 0;
    for (size_t slice = 0; slice < 3; ++slice) {
      setenv("PLIMSOLL_SHARDS", ("other/0 grid/" + std::to_string(slice)).c_str(), 1);
      if (!test::in_slice("grid", i)) continue;
      ++slices;
      ++seen[slice][i % 3];
    }
    EXPECT_EQ(slices, 1U) << i;
    EXPECT_TRUE(test::in_slice("another", i));
  }
  for (const auto& of_slice : seen) EXPECT_THAT(of_slice, testing::ElementsAre(3, 3, 3));
  setenv("PLIMSOLL_SHARDS", "grid/0 grid/1 grid/2", 1);
  for (size_t i = 0; i < 27; ++i) EXPECT_TRUE(test::in_slice("grid", i));
  unsetenv("PLIMSOLL_SHARDS");
  EXPECT_TRUE(test::in_slice("grid", 1));
}

TEST(TestSlice, a_slice_that_is_none_is_refused) {
  for (const char* words : {"grid/3", "grid/7", "grid/", "grid/0,1", "grid/0 grid/x", "grid/-1"}) {
    setenv("PLIMSOLL_SHARDS", words, 1);
    EXPECT_THROW(test::in_slice("grid", 0), std::invalid_argument) << words;
    EXPECT_TRUE(test::in_slice("another", 0)) << words;
  }
  unsetenv("PLIMSOLL_SHARDS");
}

TEST(HeapPeak, is_the_most_at_once_of_its_thread) {
  if (!HeapPeak::counts()) GTEST_SKIP() << "sanitizers answer for operator new";
  const HeapPeak peak;
  for (int i = 0; i < 3; ++i) std::string(static_cast<size_t>(kMiB), 'a');
  std::jthread([] { std::string(static_cast<size_t>(8 * kMiB), 'a'); }).join();
  EXPECT_GE(peak.bytes(), kMiB);
  EXPECT_LT(peak.bytes(), kMiB + 64 * kKiB);
  const auto both = std::pair(std::string(static_cast<size_t>(kMiB), 'a'), std::make_unique<char[]>(kMiB));
  EXPECT_GE(peak.bytes(), 2 * kMiB);
  EXPECT_LT(peak.bytes(), 2 * kMiB + 64 * kKiB);
}

TEST(Growth, capacity_for_many_values_depends_on_their_number_alone) {
  for (const size_t before : {size_t{0}, size_t{1000}, size_t{16'000}}) {
    std::vector<int32_t> values;
    values.reserve(before);
    for (int i = 0; i < 1'000'000; ++i) {
      reserve_more(values, 1);
      values.push_back(i);
      if (values.size() > (size_t{64} << 10)) {
        ASSERT_LE(values.capacity(), values.size() * 17 / 16 + 1);
      }
    }
    EXPECT_EQ(values.capacity(), 1'015'808U) << before;
  }
}

}  // namespace
}  // namespace plimsoll
