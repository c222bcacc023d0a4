#include "data/rows/dataset.h"
#include "data/files/cell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "data/rows/test_data.h"
#include "files/file.h"
#include "files/test_allocations.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Dataset open_one(const std::filesystem::path& path) { return Dataset::open(std::vector{path}); }

void hold_all(Dataset& dataset) {
  std::vector<size_t> units(dataset.units().size());
  std::iota(units.begin(), units.end(), size_t{0});
  dataset.hold(units);
}

// Every row's first cell, in order.
std::vector<std::string> all_texts(Dataset& dataset, const std::string& column) {
  dataset.select(std::vector{column});
  hold_all(dataset);
  std::vector<std::string> texts;
  Row row;
  for (int64_t i = 0; i < dataset.rows(); ++i) {
    dataset.read(i, row);
    texts.push_back(row[0].text);
  }
  return texts;
}

// Work that grows with the square of their number would take minutes. Names of keys in JSON are columns up to a number that
// plans count.
TEST(Dataset, a_row_of_200000_columns_takes_linear_time) {
  const TestFolder folder;
  constexpr int kColumns = 200'000, kMostOfJson = 4096;
  const auto json_of = [](int columns) {
    std::string json = "{";
    for (int i = 0; i < columns; ++i) json += formatted("{}\"k{}\":\"{}\"", i == 0 ? "" : ",", i, i);
    return json + "}";
  };
  std::string header, values;
  for (int i = 0; i < kColumns; ++i) {
    header += formatted("{}k{}", i == 0 ? "" : ",", i);
    values += formatted("{}{}", i == 0 ? "" : ",", i);
  }
  const auto csv = folder.write("wide.csv", header + "\n" + values + "\n");
  for (const auto& [path, columns] :
       {std::pair(folder.write("wide.jsonl", json_of(kMostOfJson) + "\n"), kMostOfJson),
        std::pair(folder.write("wide.json", "[" + json_of(kMostOfJson) + "]"), kMostOfJson),
        std::pair(csv, kColumns)}) {
    Dataset dataset = open_one(path);
    std::vector<std::string> names;
    for (const Column& column : dataset.columns()) names.push_back(column.name);
    ASSERT_EQ(names.size(), static_cast<size_t>(columns)) << path;
    for (const ReadAs as : {ReadAs::kind, ReadAs::json}) {
      dataset.select(names, as);
      hold_all(dataset);
      Row row;
      dataset.read(0, row);
      EXPECT_EQ(as == ReadAs::kind ? row.back().text : row.back().json.get<std::string>(),
                std::to_string(columns - 1))
          << path;
    }
  }
  EXPECT_THAT(message_of<UsageError>([&] {
                Dataset dataset = open_one(csv);
                dataset.select(std::vector<std::string>{"text"});
              }),
              HasSubstr("'k99' and 199900 more"));
  EXPECT_THAT(message_of<DamagedError>(
                  [&] { (void)open_one(folder.write("wider.jsonl", json_of(kColumns) + "\n")); }),
              HasSubstr("wider.jsonl:1: has an object of more than 4,096 keys"));
}

// A footer has the least and the greatest value of each column of each row group, also of those that are not
// read.
TEST(Parquet, the_memory_of_a_large_footer_is_planned) {
  const TestFolder folder;
  constexpr int64_t kGroups = 400, kCounted = 4 * kKiB;  // bytes of any unit
  const auto write = [&](const std::string& name, int columns, size_t length) {
    std::vector<NamedColumn> all;
    for (int i = 0; i < columns; ++i)
      all.emplace_back("c" + std::to_string(i),
                       text_column(kGroups, [&](int64_t) { return std::string(length, 'x'); }));
    return write_parquet(folder.path() / name, all, 1);
  };
  for (const auto& path : {write("long.parquet", 1, 2000), write("columns.parquet", 20, 1)}) {
    const int64_t before = heap_bytes();
    Dataset dataset = open_one(path);
    dataset.select(std::vector<std::string>{"c0"});
    const int64_t held = heap_bytes() - before;
    EXPECT_GT(held, kGroups * kCounted) << path;
    EXPECT_LT(held, dataset.index_bytes()) << path;
    EXPECT_LT(dataset.index_bytes(), 3 * held) << path;
  }
  const auto one = write_parquet(folder.path() / "one.parquet",
                                 {{"c0", text_column(4, [](int64_t) { return std::string("x"); })}});
  Dataset dataset = open_one(one);
  dataset.select(std::vector<std::string>{"c0"});
  EXPECT_LE(dataset.index_bytes(), kCounted);
}

TEST(Jsonl, blank_lines_are_no_rows_and_the_last_line_needs_no_end) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", "\n{\"t\": \"one\"}\r\n  \n{\"t\": \"zwei ü\"}\n\n{\"t\": \"\"}");
  Dataset dataset = open_one(path);
  EXPECT_THAT(all_texts(dataset, "t"), ElementsAre("one", "zwei ü", ""));
  EXPECT_EQ(dataset.where(1), path.string() + ":4");
}

TEST(Jsonl, a_bad_line_is_named_with_its_reason) {
  const TestFolder folder;
  const auto read_second = [&](const std::string& line) {
    const auto path = folder.write("a.jsonl", "{\"t\": \"one\"}\n\n" + line + "\n");
    Dataset dataset = open_one(path);
    std::string message = message_of<DamagedError>([&] { all_texts(dataset, "t"); });
    EXPECT_THAT(message, HasSubstr(path.string() + ":3: "));
    return message;
  };
  EXPECT_THAT(read_second("{\"t\": \"tw"), HasSubstr("is not valid JSON: parse error"));
  EXPECT_THAT(read_second("{\"u\": \"two\"}"), HasSubstr("has no 't'."));
  EXPECT_THAT(read_second("{\"t\": 2}"), HasSubstr("'t' is a number, a string is expected."));
  EXPECT_THAT(read_second("[1]"), HasSubstr("is an array, not an object."));
  EXPECT_THAT(read_second("{\"t\": \"\xFF\"}"), HasSubstr("is not valid JSON"));
}

TEST(Jsonl, a_bad_first_line_is_named_too) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", "\nnot json\n");
  EXPECT_THAT(message_of<DamagedError>([&] { open_one(path); }),
              HasSubstr(path.string() + ":2: is not valid JSON"));
}

TEST(Jsonl, ids_beyond_32_bits_are_no_token_ids) {
  const TestFolder folder;
  for (const std::string bad : {"4294967296", "18446744073709551615", "-3000000000", "1.5"}) {
    Dataset dataset = open_one(folder.write("a.jsonl", "{\"x\": [1]}\n{\"x\": [1, " + bad + "]}\n"));
    dataset.select(std::vector<std::string>{"x"});
    hold_all(dataset);
    Row row;
    EXPECT_THAT(message_of<DamagedError>([&] { dataset.read(1, row); }), HasSubstr("which is no token id."))
        << bad;
  }
}

TEST(Jsonl, a_large_file_is_cut_into_units) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 9000; ++i) text += "{\"t\": \"" + std::to_string(i) + std::string(990, 'x') + "\"}\n";
  Dataset dataset = open_one(folder.write("a.jsonl", text));
  dataset.select(std::vector<std::string>{"t"});
  EXPECT_EQ(dataset.rows(), 9000);
  ASSERT_EQ(dataset.units().size(), 9U);  // of about 1 MiB
  dataset.hold(std::vector<size_t>{8});
  Row row;
  dataset.read(8999, row);
  EXPECT_EQ(row[0].text.substr(0, 5), "8999x");
  EXPECT_EQ(dataset.where(8999).substr(dataset.where(8999).rfind(':')), ":9000");
  EXPECT_THROW(dataset.read(0, row), InternalError);  // its unit is not held
}

TEST(Parquet, texts_and_ids_are_read_from_every_row_group) {
  const TestFolder folder;
  std::vector<std::vector<int64_t>> ids;
  for (int64_t row = 0; row < 10; ++row) ids.emplace_back(static_cast<size_t>(row), row);
  const auto path =
      write_parquet(folder.path() / "a.parquet",
                    {{"unused", text_column(10, [](int64_t) { return "x"; })},
                     {"ids", ids_column(ids)},
                     {"text", text_column(10, [](int64_t row) { return "row " + std::to_string(row); })}},
                    3);
  Dataset dataset = open_one(path);
  dataset.select(std::vector<std::string>{"text", "ids"});
  EXPECT_EQ(dataset.rows(), 10);
  EXPECT_EQ(dataset.units().size(), 4U);
  hold_all(dataset);
  Row row;
  for (const int64_t i : {9, 0, 5}) {
    dataset.read(i, row);
    EXPECT_EQ(row[0].text, "row " + std::to_string(i));
    EXPECT_EQ(row[1].ids, std::vector<int32_t>(static_cast<size_t>(i), static_cast<int32_t>(i)));
  }
}

// One row group of 16 MiB, as writers make by default: its units load one by one, forward and backward, and
// Arrow never holds the whole of it.
TEST(Parquet, a_large_row_group_is_read_in_slices_of_bounded_memory) {
  const TestFolder folder;
  constexpr int64_t kRows = 16384;
  const auto path =
      write_parquet(folder.path() / "a.parquet", {{"text", text_column(kRows, [](int64_t row) {
                                                     return std::to_string(row) + std::string(1020, 'x');
                                                   })}});
  Dataset dataset = open_one(path);
  dataset.select(std::vector<std::string>{"text"});
  dataset.cap_memory(kUnitBytes);
  ASSERT_GE(dataset.units().size(), 4U);
  Row row;
  for (const size_t unit : {0U, 1U, 3U, 2U}) {
    dataset.hold(std::vector<size_t>{unit});
    const PlacedUnit& placed = dataset.units()[unit];
    for (const int64_t i : {placed.first_row, placed.first_row + placed.rows - 1}) {
      dataset.read(i, row);
      EXPECT_EQ(row[0].text, std::to_string(i) + std::string(1020, 'x'));
    }
  }
  EXPECT_LT(dataset.peak_arrow_bytes(), 14 * kMiB);
}

TEST(Parquet, memory_beyond_the_cap_is_refused_with_a_remedy) {
  const TestFolder folder;
  const auto path =
      write_parquet(folder.path() / "a.parquet", {{"text", text_column(70'000, [](int64_t row) {
                                                     return std::to_string(row) + std::string(1020, 'x');
                                                   })}});
  Dataset dataset = open_one(path);
  dataset.select(std::vector<std::string>{"text"});
  dataset.cap_memory(0);
  EXPECT_THAT(message_of<DoesNotFitError>([&] { hold_all(dataset); }), HasSubstr("with size statistics"));
}

TEST(Parquet, dictionary_columns_are_text) {
  const TestFolder folder;
  arrow::StringDictionaryBuilder builder;
  for (const char* text : {"yes", "no", "yes"}) must(builder.Append(text));
  const auto path = write_parquet(folder.path() / "a.parquet", {{"text", builder.Finish().ValueOrDie()}});
  Dataset dataset = open_one(path);
  EXPECT_THAT(all_texts(dataset, "text"), ElementsAre("yes", "no", "yes"));
}

TEST(Parquet, a_null_is_named_by_row_and_column) {
  const TestFolder folder;
  arrow::StringBuilder builder;
  must(builder.Append("a"));
  must(builder.AppendNull());
  const auto path = write_parquet(folder.path() / "a.parquet", {{"text", builder.Finish().ValueOrDie()}});
  Dataset dataset = open_one(path);
  EXPECT_EQ(message_of<DamagedError>([&] { all_texts(dataset, "text"); }),
            path.string() + ": row 1: 'text' is null.");
}

TEST(Parquet, text_that_is_not_utf_8_is_refused) {
  const TestFolder folder;
  const auto path = write_parquet(folder.path() / "a.parquet",
                                  {{"text", text_column(1, [](int64_t) { return "caf\xE9"; })}});
  Dataset dataset = open_one(path);
  EXPECT_EQ(message_of<DamagedError>([&] { all_texts(dataset, "text"); }),
            path.string() + ": row 0: 'text' is not valid UTF-8.");
}

TEST(Parquet, a_damaged_file_is_refused_wherever_it_is_cut) {
  const TestFolder folder;
  const auto path =
      write_parquet(folder.path() / "a.parquet",
                    {{"text", text_column(100, [](int64_t row) { return std::to_string(row); })}});
  const std::string whole = read_text(path, kMiB);
  for (size_t length = 0; length < whole.size(); length += 37)
    EXPECT_THROW(open_one(folder.write("cut.parquet", whole.substr(0, length))), DamagedError) << length;
  std::string garbled = whole;  // a page, not the footer
  for (size_t i = 4; i < 60; ++i) garbled[i] = static_cast<char>(0xAA);
  Dataset dataset = open_one(folder.write("garbled.parquet", garbled));
  EXPECT_THROW(all_texts(dataset, "text"), DamagedError);
}

// Bytes of the footer: whatever it says, the answer is rows or an error of ours.
TEST(Parquet, a_footer_with_any_byte_changed_is_read_or_refused) {
  const TestFolder folder;
  const auto path =
      write_parquet(folder.path() / "a.parquet",
                    {{"text", text_column(20, [](int64_t row) { return std::to_string(row); })}});
  const std::string whole = read_text(path, kMiB);
  int refused = 0;
  for (size_t i = whole.size() / 3; i < whole.size(); i += 5) {
    for (const int change : {1, 0x7F}) {
      std::string changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ change);
      try {
        Dataset dataset = open_one(folder.write("changed.parquet", changed));
        dataset.cap_memory(kMiB);
        all_texts(dataset, "text");
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 30);
}

TEST(Dataset, rows_are_numbered_through_the_files_of_a_folder) {
  const TestFolder folder;
  write_parquet(folder.path() / "b.parquet",
                {{"t", text_column(2, [](int64_t row) { return "b" + std::to_string(row); })}});
  folder.write("a.jsonl", "{\"t\": \"a0\"}\n");
  folder.write("c.jsonl", "{\"t\": \"c0\"}\n");
  folder.write("empty.jsonl", "");
  folder.write("notes.txt", "not data");
  Dataset dataset = open_one(folder.path());
  EXPECT_THAT(all_texts(dataset, "t"), ElementsAre("a0", "b0", "b1", "c0"));
}

TEST(Dataset, what_is_open_is_read_again_without_its_file) {
  for (const char* name : {"rows.jsonl", "rows.csv", "rows.json"}) {
    const TestFolder folder;
    const bool is_csv = std::string_view(name).ends_with("csv");
    const bool is_list = std::string_view(name).ends_with(".json");
    const auto path = folder.write(name, is_csv    ? "text\na\nb\n"
                                         : is_list ? R"([{"text": "a"}, {"text": "b"}])"
                                                   : "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    Dataset first = open_one(path);
    EXPECT_THAT(all_texts(first, "text"), ElementsAre("a", "b"));
    std::filesystem::remove(path);
    Dataset again = first.again();
    EXPECT_EQ(again.rows(), 2) << name;
    EXPECT_EQ(again.name(), first.name());
    EXPECT_EQ(again.units().size(), first.units().size());
    hold_all(again);
    for (Dataset* dataset : {&again, &first}) {  // what one holds, the other does not let go
      Row row;
      dataset->read(1, row);
      EXPECT_EQ(row[0].text, "b") << name;
    }
    Dataset other = std::move(again);
    again = first.again();
    EXPECT_EQ(other.rows(), 2) << name;
  }
}

TEST(Dataset, a_missing_column_names_those_that_exist) {
  const TestFolder folder;
  Dataset dataset = open_one(folder.write("a.jsonl", prompt_lines(1)));
  EXPECT_THAT(message_of<UsageError>([&] { dataset.select(std::vector<std::string>{"answer"}); }),
              HasSubstr("has no column 'answer'; it has 'prompt', 'response'."));
}

TEST(Dataset, no_rows_and_no_files_are_refused) {
  const TestFolder folder;
  Dataset empty = open_one(folder.write("a.jsonl", "\n \n"));
  EXPECT_THAT(message_of<UsageError>([&] { empty.select(std::vector<std::string>{"t"}); }),
              HasSubstr("has no rows."));
  EXPECT_THAT(message_of<UsageError>([&] { (void)empty.columns(); }), HasSubstr("has no rows."));
  const auto none = write_parquet(folder.path() / "none.parquet", {{"t", text_column(0, {})}});
  Dataset no_rows = open_one(none);
  EXPECT_THAT(message_of<UsageError>([&] { no_rows.select(std::vector<std::string>{"t"}); }),
              HasSubstr("has no rows."));
  EXPECT_THROW(open_one(folder.path() / "absent.jsonl"), UsageError);
  EXPECT_THAT(message_of<UsageError>([&] { open_one(folder.write("a.txt", "t\nx\n")); }),
              HasSubstr("the format is not supported"));
  EXPECT_THAT(message_of<UsageError>([&] { open_one(folder.write("a.parquet.gz", "x")); }),
              AllOf(HasSubstr("gunzip -k "), HasSubstr("a.parquet.gz. .parquet, .jsonl")));
  EXPECT_THAT(message_of<DamagedError>([&] { open_one(folder.write("a.parquet", "no Parquet at all")); }),
              testing::MatchesRegex(".*a.parquet: cannot be read as Parquet: .*[^.]\\."));
  std::filesystem::create_directory(folder.path() / "sub");
  EXPECT_THROW(open_one(folder.path() / "sub"), UsageError);
}

}  // namespace
}  // namespace plimsoll
