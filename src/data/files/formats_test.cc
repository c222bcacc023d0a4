// JSON, CSV and Arrow IPC files, and which files a path means.
#include <arrow/ipc/writer.h>
#include <arrow/util/compression.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "data/files/cell.h"
#include "data/rows/dataset.h"
#include "data/rows/test_data.h"
#include "files/file.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Dataset open_file(const std::filesystem::path& path, RowErrors on_error = RowErrors::stop) {
  return Dataset::open(std::vector{WeightedPath{path}}, on_error);
}

std::vector<std::string> texts_of(Dataset& dataset, const std::string& column) {
  dataset.select(std::vector{column});
  std::vector<size_t> units(dataset.units().size());
  std::iota(units.begin(), units.end(), size_t{0});
  dataset.hold(units);
  std::vector<std::string> texts;
  Row row;
  for (int64_t i = 0; i < dataset.rows(); ++i) {
    dataset.read(i, row);
    texts.push_back(row[0].text);
  }
  return texts;
}

class Formats : public testing::Test {
 protected:
  std::vector<std::string> texts(const std::string& name, const std::string& content) {
    Dataset dataset = open_file(folder_.write(name, content));
    return texts_of(dataset, "t");
  }
  template <class Problem>
  std::string problem(const std::string& name, const std::string& content) {
    return message_of<Problem>([&] { texts(name, content); });
  }

  TestFolder folder_;
};

// The columns of `bound`, and the texts of the rows that can be read; of others the problem.
struct Bound {
  std::vector<std::string> columns, texts;
};

Bound bound(const std::vector<std::filesystem::path>& paths, std::optional<RowFormat> format = {},
            RowErrors on_error = RowErrors::stop) {
  std::vector<WeightedPath> weighted;
  for (const auto& path : paths) weighted.push_back({path});
  Dataset dataset = Dataset::open(weighted, on_error);
  const ColumnBinding binding = dataset.bind(
      [&](std::span<const Column> columns) { return bind_columns(columns, format, {}, "data"); });
  dataset.select(binding.columns, binding.read_as());
  std::vector<size_t> units(dataset.units().size());
  std::iota(units.begin(), units.end(), size_t{0});
  dataset.hold(units);
  Bound result{binding.columns, {}};
  Row row;
  for (int64_t i = 0; i < dataset.rows(); ++i) {
    try {
      dataset.read(i, row);
      result.texts.push_back(binding.read_as() == ReadAs::kind ? row[0].text : row[0].json.dump());
    } catch (const DamagedError& error) {
      result.texts.push_back(std::filesystem::path(error.what()).filename());
    }
  }
  return result;
}

TEST_F(Formats, a_first_row_that_cannot_be_used_does_not_decide_what_the_columns_are) {
  const std::string good = R"({"prompt": "x", "response": "y"})";
  for (const auto& [first, problem] :
       {std::pair{R"({"prompt": 3, "response": "a"})", "'prompt' is a number, a string is expected."},
        std::pair{R"({"prompt": null, "response": "a"})", "'prompt' is null, a string is expected."},
        std::pair{R"({"x": 3})", "has no 'prompt'."}, std::pair{"{}", "has no 'prompt'."}}) {
    const auto lines = folder_.write("a.jsonl", first + std::string("\n") + good + "\n");
    EXPECT_THAT(bound({lines}).texts, ElementsAre("a.jsonl:1: " + std::string(problem), "x"));
    const auto list = folder_.write("a.json", "[" + std::string(first) + ",\n" + good + "]");
    EXPECT_THAT(bound({list}).texts, ElementsAre("a.json: row 0 (line 1): " + std::string(problem), "x"));
    const auto fine = folder_.write("fine.jsonl", good);  // and that of another file neither
    EXPECT_THAT(bound({fine, lines}).texts, ElementsAre("x", "a.jsonl:1: " + std::string(problem), "x"));
  }
  const auto broken = folder_.write("b.jsonl", "{\n{\"x\": 3}\n" + good);
  EXPECT_THAT(bound({broken}, {}, RowErrors::skip).texts.back(), "x");
}

TEST_F(Formats, answers_are_of_the_first_row_that_has_some) {
  const auto pairs = folder_.write("a.jsonl", R"({"chosen": null, "rejected": "b"})"
                                              "\n"
                                              R"({"chosen": "a", "rejected": "b"})");
  EXPECT_THAT(bound({pairs}, RowFormat::preference).texts, ElementsAre("null", "\"a\""));
}

TEST_F(Formats, where_no_row_can_be_used_the_first_ones_columns_are_named) {
  const auto none = folder_.write("a.jsonl", R"({"prompt": 3, "response": "a"})"
                                             "\n"
                                             R"({"x": 3})");
  EXPECT_THAT(message_of<UsageError>([&] { bound({none}); }),
              HasSubstr("column 'prompt' is a number, text is expected"));
  std::string late;
  for (int i = 0; i < 64; ++i) late += "{\"x\": 3}\n";
  const auto far = folder_.write("a.jsonl", late + R"({"prompt": "x", "response": "y"})");
  EXPECT_THAT(message_of<UsageError>([&] { bound({far}); }), HasSubstr("no known format has the columns x"));
}

TEST_F(Formats, texts_in_utf16_are_named_so) {
  for (const std::string ending : {"jsonl", "json", "csv", "tsv"}) {
    EXPECT_THAT(
        problem<DamagedError>("a." + ending, std::string("\xFF\xFE{\0", 4)),
        HasSubstr("a." + ending + ": is written in UTF-16 (its first bytes are FF FE), UTF-8 is expected"));
    EXPECT_THAT(problem<DamagedError>("a." + ending, std::string("\xFE\xFF\0{", 4)), HasSubstr("FE FF"));
  }
  EXPECT_THAT(problem<DamagedError>("a.csv", std::string("\xFF\xFE\0\0t\0\0\0", 8)), HasSubstr("UTF-32"));
}

TEST_F(Formats, csv_lines_may_end_with_a_carriage_return_alone) {
  EXPECT_THAT(texts("a.csv", "t,u\rone,1\r\r\"two\nlines\",2\rthree,3"),
              ElementsAre("one", "two\nlines", "three"));
  Dataset dataset = open_file(folder_.write("a.csv", "t;u\rone;1\rtwo;2\r"));
  EXPECT_THAT(texts_of(dataset, "u"), ElementsAre("1", "2"));
  EXPECT_EQ(dataset.where(1).substr(dataset.where(1).rfind('/')), "/a.csv:3");
  EXPECT_THAT(texts("a.csv", "t,u\nor\rso,1\n"), ElementsAre("or\rso"));
}

TEST_F(Formats, json_is_a_list_of_objects_or_an_object_that_has_one) {
  const std::string rows = R"([{"t": "one", "x": [1, {"y": "]}"}]} ,
    {"t": "a \"quoted\" { brace \\"}])";
  EXPECT_THAT(texts("a.json", rows), ElementsAre("one", "a \"quoted\" { brace \\"));
  EXPECT_THAT(
      texts("a.json", "\xEF\xBB\xBF {\"version\": 1.5, \"tags\": [\"a\", [1]], \"empty\": [], \"data\": " +
                          rows + ", \"more\": {\"x\": [1]}, \"end\": null}\n"),
      ElementsAre("one", "a \"quoted\" { brace \\"));
  Dataset dataset = open_file(folder_.write("a.json", rows));
  texts_of(dataset, "t");
  EXPECT_EQ(dataset.where(1), (folder_.path() / "a.json").string() + ": row 1 (line 2)");
}

TEST_F(Formats, json_lines_are_read_under_the_name_json_too) {
  EXPECT_THAT(texts("a.json", "{\"t\": \"one\"}\n{\"t\": \"two\"}\n"), ElementsAre("one", "two"));
  EXPECT_THAT(texts("a.json", "{\"t\": \"one\"}\n"), ElementsAre("one"));
}

TEST_F(Formats, json_that_is_cut_or_no_list_is_refused) {
  const std::string whole = R"({"v": 1, "d": [{"t": "one"}, {"t": "two"}]})";
  for (size_t length = 1; length < whole.size(); ++length)
    EXPECT_THROW(texts("cut.json", whole.substr(0, length)), DamagedError) << length;
  EXPECT_THAT(problem<DamagedError>("a.json", R"([{"t": "a"} {"t": "b"}])"),
              HasSubstr(":1: ',' or ']' is expected"));
  EXPECT_THAT(problem<DamagedError>("a.json", "[{\"t\": \"a\"},\n 7]"), HasSubstr(":2: a row is expected"));
  EXPECT_THAT(problem<DamagedError>("a.json", R"([{"t": "a"}] x)"),
              HasSubstr("nothing is expected after the end"));
  const std::string lists = problem<DamagedError>(
      "a.json", R"({"train": [{"t": "a"}], "n": 1, "x y": {"z": []}, "test": [{"t": "a"}]})");
  EXPECT_THAT(lists, HasSubstr("two lists of rows, 'train' and 'test'"));
  EXPECT_THAT(lists, HasSubstr("> train.jsonl"));
  EXPECT_THAT(problem<DamagedError>("a.json", R"({"a\"; b": [{"t": "a"}], "c'": [{"t": "a"}]})"),
              testing::Not(HasSubstr("python3")));
  EXPECT_THAT(problem<DamagedError>("a.json", "{\"a\":\n {\"t\": 1}}"),
              HasSubstr("holds no list of objects"));
  EXPECT_THAT(problem<DamagedError>("a.json", "\"text\""), HasSubstr("is no JSON list"));
  EXPECT_THAT(problem<UsageError>("a.json", "[]"), HasSubstr("has no rows"));
  EXPECT_THAT(problem<DamagedError>("a.json", R"([{"t": "a"}, {"t": 1}])"),
              HasSubstr("row 1 (line 1): 't' is a number, a string is expected."));
}

// A list that is cut anywhere at a unit's border reads as it was written.
TEST_F(Formats, a_long_json_list_is_read_in_units) {
  std::string rows = "[";
  constexpr int64_t kRows = 5000;
  for (int64_t i = 0; i < kRows; ++i)
    rows += (i == 0 ? "" : ",\n") + (R"({"t": ")" + std::string(2000, 'x') + std::to_string(i) + "\"}");
  Dataset dataset = open_file(folder_.write("a.json", rows + "]"));
  const std::vector<std::string> read = texts_of(dataset, "t");
  ASSERT_EQ(read.size(), static_cast<size_t>(kRows));
  EXPECT_GE(dataset.units().size(), 9U);
  for (int64_t i = 0; i < kRows; ++i) EXPECT_EQ(read[static_cast<size_t>(i)].substr(2000), std::to_string(i));
  EXPECT_THAT(dataset.where(kRows - 1), HasSubstr("row 4999 (line 5000)"));
}

TEST_F(Formats, csv_is_quoted_as_in_rfc_4180) {
  EXPECT_THAT(texts("a.csv", "\xEF\xBB\xBFn,t\r\n1,plain\r\n2,\"a, \"\"b\"\"\nc\"\r\n\r\n3,\n4,x\"y\n5,\"\""),
              ElementsAre("plain", "a, \"b\"\nc", "", "x\"y", ""));
  EXPECT_THAT(texts("a.tsv", "t\tn\na,b\t1\n"), ElementsAre("a,b"));
  Dataset dataset = open_file(folder_.write("a.csv", "t\n\"a\nb\"\nc\n"));
  texts_of(dataset, "t");
  EXPECT_EQ(dataset.where(1), (folder_.path() / "a.csv").string() + ":4");
}

TEST_F(Formats, a_csv_whose_header_has_no_comma_is_separated_by_its_semicolons_or_tabs) {
  EXPECT_THAT(texts("a.csv", "n;t\r\n1;a, b\r\n2;\"c; \"\"d\"\"\"\r\n"), ElementsAre("a, b", "c; \"d\""));
  EXPECT_THAT(texts("a.csv", "\xEF\xBB\xBFt\tn\na,b;c\t1\n"), ElementsAre("a,b;c"));
  EXPECT_THAT(texts("a.csv", "n;m,t\n1,a;b\n"), ElementsAre("a;b"));
  EXPECT_THAT(texts("a.csv", "t\na;b\n"), ElementsAre("a;b"));
}

TEST_F(Formats, a_bad_csv_record_is_named_with_its_reason) {
  EXPECT_THAT(problem<DamagedError>("a.csv", "n,t\n1,a\n2,b,c\n"),
              HasSubstr("a.csv:3: has 3 fields, the header names 2."));
  EXPECT_THAT(problem<DamagedError>("a.csv", "n,t\n1,\"a\nb\n"),
              HasSubstr("a.csv:2: a quote is opened and never closed"));
  EXPECT_THAT(problem<DamagedError>("a.csv", "n,t\n1,\"a\"b\n"),
              HasSubstr("continues after its closing quote"));
  EXPECT_THAT(problem<DamagedError>("a.csv", "t,t\na,b\n"), HasSubstr("names 't' twice"));
  EXPECT_THAT(problem<DamagedError>("a.csv", "t\n\xFF\n"), HasSubstr("'t' is not valid UTF-8: iconv"));
  EXPECT_THAT(problem<DamagedError>("a.jsonl", "{\"t\": \"caf\xE9\"}\n"), HasSubstr("iconv -f LATIN1"));

  EXPECT_THAT(problem<UsageError>("a.csv", "t\n"), HasSubstr("has no rows"));
  EXPECT_THAT(problem<UsageError>("a.csv", "u\nx\n"), HasSubstr("has no column 't'; it has 'u'"));
}

std::shared_ptr<arrow::Table> numbered(int64_t rows, bool dictionary = false) {
  auto texts = text_column(rows, [](int64_t row) { return "t" + std::to_string(row); });
  if (dictionary) {
    arrow::StringDictionaryBuilder builder;
    for (int64_t row = 0; row < rows; ++row) must(builder.Append("t" + std::to_string(row % 3)));
    texts = builder.Finish().ValueOrDie();
  }
  std::vector<std::vector<int64_t>> ids;
  for (int64_t row = 0; row < rows; ++row) ids.push_back({row, row + 1});
  const auto lists = ids_column(ids);
  return arrow::Table::Make(
      arrow::schema({arrow::field("ids", lists->type()), arrow::field("t", texts->type())}), {lists, texts});
}

struct IpcKind {
  bool stream = true;
  arrow::Compression::type codec = arrow::Compression::UNCOMPRESSED;
};

std::filesystem::path write_ipc(const std::filesystem::path& path, const arrow::Table& table, IpcKind kind,
                                int64_t batch_rows = 7) {
  auto options = arrow::ipc::IpcWriteOptions::Defaults();
  if (kind.codec != arrow::Compression::UNCOMPRESSED)
    options.codec = arrow::util::Codec::Create(kind.codec).ValueOrDie();
  const auto file = arrow::io::FileOutputStream::Open(path.string()).ValueOrDie();
  const auto writer = kind.stream ? arrow::ipc::MakeStreamWriter(file, table.schema(), options).ValueOrDie()
                                  : arrow::ipc::MakeFileWriter(file, table.schema(), options).ValueOrDie();
  must(writer->WriteTable(table, batch_rows));
  must(writer->Close());
  must(file->Close());
  return path;
}

TEST_F(Formats, arrow_streams_and_files_are_read_with_any_codec_and_dictionaries) {
  for (const bool stream : {true, false}) {
    for (const auto codec :
         {arrow::Compression::UNCOMPRESSED, arrow::Compression::LZ4_FRAME, arrow::Compression::ZSTD}) {
      Dataset dataset = open_file(write_ipc(folder_.path() / "a.arrow", *numbered(20), {stream, codec}));
      const std::vector<std::string> read = texts_of(dataset, "t");
      ASSERT_EQ(read.size(), 20U);
      for (size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i], "t" + std::to_string(i));
      dataset.select(std::vector<std::string>{"ids"});
      dataset.hold(std::vector<size_t>{0});
      Row row;
      dataset.read(19, row);
      EXPECT_THAT(row[0].ids, ElementsAre(19, 20));
    }
    Dataset dataset = open_file(write_ipc(folder_.path() / "d.arrow", *numbered(20, true), {stream}));
    EXPECT_EQ(texts_of(dataset, "t")[19], "t1");
  }
}

TEST_F(Formats, arrow_files_that_are_cut_are_refused_or_hold_fewer_rows) {
  const std::string whole = read_text(write_ipc(folder_.path() / "a.arrow", *numbered(20), {}), kMiB);
  int refused = 0;
  for (size_t length = 0; length < whole.size(); length += 24) {
    try {
      Dataset dataset = open_file(folder_.write("cut.arrow", whole.substr(0, length)));
      EXPECT_LT(texts_of(dataset, "t").size(), 21U);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
}

// Whatever a message says, the answer is rows or an error of ours: under sanitizers too.
TEST_F(Formats, arrow_with_any_byte_changed_is_read_or_refused) {
  const std::string whole = read_text(write_ipc(folder_.path() / "a.arrow", *numbered(12), {}), kMiB);
  int refused = 0;
  for (size_t i = 0; i < whole.size(); i += 3) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x7F);
    try {
      Dataset dataset = open_file(folder_.write("changed.arrow", changed));
      dataset.cap_memory(kMiB);
      texts_of(dataset, "t");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 30);
}

TEST_F(Formats, folders_of_datasets_have_the_files_of_their_state) {
  write_ipc(folder_.path() / "data-00000-of-00002.arrow", *numbered(2), {});
  write_ipc(folder_.path() / "data-00001-of-00002.arrow", *numbered(3), {});
  write_ipc(folder_.path() / "cache-1.arrow", *numbered(9), {});
  folder_.write("dataset_info.json", "{}");
  folder_.write(
      "state.json",
      R"({"_data_files": [{"filename": "data-00001-of-00002.arrow"}, {"filename": "data-00000-of-00002.arrow"}]})");
  Dataset dataset = open_file(folder_.path());
  EXPECT_THAT(texts_of(dataset, "t"), ElementsAre("t0", "t1", "t2", "t0", "t1"));
  folder_.write("state.json", R"({"_data_files": [{"filename": "../x.arrow"}]})");
  EXPECT_THROW(open_file(folder_.path()), DamagedError);
  folder_.write("state.json", R"({"_data_files": [{"filename": "absent.arrow"}]})");
  EXPECT_THAT(message_of<UsageError>([&] { open_file(folder_.path()); }),
              HasSubstr("absent.arrow: is missing"));
  folder_.write("dataset_dict.json", R"({"splits": ["train"]})");
  EXPECT_THAT(message_of<UsageError>([&] { open_file(folder_.path()); }), HasSubstr("is a set of splits"));
}

TEST_F(Formats, patterns_match_data_files_by_name) {
  folder_.write("b1.jsonl", "{\"t\": \"b1\"}\n");
  folder_.write("a 2.csv", "t\na2\n");
  folder_.write("a1.json", "[{\"t\": \"a1\"}]");
  folder_.write("a3.txt", "x");
  Dataset dataset = open_file(folder_.path() / "a*");
  EXPECT_THAT(texts_of(dataset, "t"), ElementsAre("a2", "a1"));
  Dataset either = open_file(folder_.path() / "[ab]1.json*");
  EXPECT_THAT(texts_of(either, "t"), ElementsAre("a1", "b1"));
  EXPECT_THAT(message_of<UsageError>([&] { open_file(folder_.path() / "z*.json"); }),
              HasSubstr("no data file matches"));
  EXPECT_THAT(message_of<UsageError>([&] { open_file(folder_.path() / "**" / "a1.json"); }),
              HasSubstr("not supported"));
}

TEST_F(Formats, jsonl_whose_first_line_is_bad_takes_its_columns_from_the_next_when_rows_are_skipped) {
  const auto path = folder_.write("a.jsonl", "{bad\n{\"t\": \"two\"}\n");
  EXPECT_THROW(open_file(path), DamagedError);
  Dataset dataset = open_file(path, RowErrors::skip);
  dataset.select(std::vector<std::string>{"t"});
  EXPECT_EQ(dataset.rows(), 2);
}

// Every text format, packed in two members with zeros between and behind them, as tapes leave them.
TEST(Packed, texts_are_read_as_what_is_in_them) {
  const TestFolder folder;
  const std::string zeros(700, '\0');
  for (const auto& [name, text] :
       std::vector<std::pair<std::string, std::string>>{{"a.jsonl", R"({"t": "x"})"
                                                                    "\n"
                                                                    R"({"t": "y"})"},
                                                        {"a.json", R"([{"t": "x"}, {"t": "y"}])"},
                                                        {"lines.json", R"({"t": "x"})"
                                                                       "\n"
                                                                       R"({"t": "y"})"
                                                                       "\n"},
                                                        {"a.csv", "t\nx\ny\n"},
                                                        {"a.tsv", "u\tt\n1\tx\n2\ty\n"}}) {
    const std::string packed =
        packed_by_gzip(text.substr(0, 5)) + zeros + packed_by_gzip(text.substr(5)) + zeros;
    Dataset dataset = Dataset::open(std::vector{folder.write(name + ".gz", packed)});
    dataset.select(std::vector<std::string>{"t"});
    ASSERT_EQ(dataset.rows(), 2) << name;
    dataset.hold_row(1);
    dataset.hold_row(0);
    Row cells;
    dataset.read(0, cells);
    EXPECT_EQ(cells[0].text, "x") << name;
  }
}

TEST_F(Formats, endings_of_names_are_read_in_any_case) {
  EXPECT_THAT(texts("A.JSONL", "{\"t\": \"x\"}\n"), ElementsAre("x"));
  EXPECT_THAT(texts("A.Csv", "t,u\ny,1\n"), ElementsAre("y"));
  EXPECT_THAT(texts("B.JSONL.GZ", packed_by_gzip("{\"t\": \"z\"}\n")), ElementsAre("z"));
  EXPECT_EQ(data_files(folder_.path()).size(), 3);
}

TEST(Packed, a_text_whose_unpacked_file_is_there_too_is_read_once) {
  const TestFolder folder;
  folder.write("a.jsonl", "{\"t\": \"x\"}\n");
  folder.write("a.jsonl.gz", packed_by_gzip("{\"t\": \"x\"}\n"));
  folder.write("b.jsonl.gz", packed_by_gzip("{\"t\": \"y\"}\n"));
  for (const auto& path : {folder.path(), folder.path() / "*"}) {
    std::vector<std::string> names;
    for (const auto& file : data_files(path)) names.push_back(file.filename().string());
    EXPECT_THAT(names, testing::ElementsAre("a.jsonl", "b.jsonl.gz")) << path;
  }
}

TEST(Packed, what_is_no_whole_gzip_is_named) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += R"({"t": ")" + std::to_string(i * i) + "\"}\n";
  const std::string packed = packed_by_gzip(text);
  std::string flipped = packed;
  flipped[packed.size() / 2] = static_cast<char>(flipped[packed.size() / 2] ^ 1);
  for (const auto& [bytes, how] : std::vector<std::pair<std::string, std::string>>{
           {packed.substr(0, packed.size() / 2), "is cut off"},
           {packed.substr(0, packed.size() - 1), "is cut off"},
           {packed.substr(0, 1), "is cut off"},
           {flipped, "is damaged"},
           {"", "is empty"},
           {text, "is not packed by gzip"},
           {packed + "more", "what follows the packed text is not gzip's"}}) {
    const auto path = folder.write("a.jsonl.gz", bytes);
    EXPECT_THAT(message_of<DamagedError>([&] { Dataset::open(std::vector{path}); }),
                AllOf(HasSubstr(path.string() + ": " + how), HasSubstr("gzip -t ")));
  }
  // Changed behind the reader's back.
  const auto path = folder.write("a.jsonl.gz", packed);
  Dataset dataset = Dataset::open(std::vector{path});
  dataset.select(std::vector<std::string>{"t"});
  std::ofstream(path, std::ios::in) << packed_by_gzip("{\"t\": 1}\n" + text);
  dataset.hold_row(0);
  Row cells;
  EXPECT_THAT(message_of<DamagedError>([&] { dataset.read(0, cells); }), HasSubstr(path.string()));
}

}  // namespace
}  // namespace plimsoll
