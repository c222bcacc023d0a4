// A full shuffle is the same permutation of all rows, however the files keep them.
#include "data/rows/row_access.h"

#include <arrow/ipc/writer.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "data/batch/loader.h"
#include "data/rows/row_store.h"
#include "data/rows/test_data.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

constexpr int64_t kRows = 10'000, kClasses = 5, kBatch = 4;
constexpr int64_t kSmallWindow = 32 * kKiB;  // far below the rows' megabytes

// Sorted by class: "c3 number 12345 ...".
std::string sorted_text(int64_t row) {
  return "c" + std::to_string(row * kClasses / kRows) + " number " + std::to_string(row) + " " +
         std::string(150, '.');
}

std::filesystem::path write_arrow(const std::filesystem::path& path, const NamedColumn& column,
                                  int64_t batch_rows) {
  const auto table =
      arrow::Table::Make(arrow::schema({arrow::field(column.first, column.second->type())}), {column.second});
  const auto file = arrow::io::FileOutputStream::Open(path.string()).ValueOrDie();
  const auto writer = arrow::ipc::MakeFileWriter(file, table->schema()).ValueOrDie();
  must(writer->WriteTable(*table, batch_rows));
  must(writer->Close());
  must(file->Close());
  return path;
}

std::vector<std::filesystem::path> sorted_files(const TestFolder& folder) {
  const NamedColumn column = {"text", text_column(kRows, sorted_text)};
  std::string lines, list = "[", csv = "text\n";
  for (int64_t row = 0; row < kRows; ++row) {
    const std::string text = sorted_text(row);
    lines += R"({"text": ")" + text + "\"}\n" + (row % 7 == 0 ? "\n" : "");
    list += (row == 0 ? "" : ",\n ") + (R"({"text": ")" + text + "\"}");
    csv += text + "\n";
  }
  return {write_parquet(folder.path() / "one.parquet", {column}),
          write_parquet(folder.path() / "groups.parquet", {column}, 100),
          write_arrow(folder.path() / "one.arrow", column, kRows),
          write_arrow(folder.path() / "batches.arrow", column, 100),
          folder.write("a.jsonl", lines),
          folder.write("a.json", list + "]"),
          folder.write("a.csv", csv)};
}

std::unique_ptr<Loader> load_texts(const std::filesystem::path& path, const OrderOptions& order,
                                   RowErrors on_error = RowErrors::stop) {
  Dataset dataset = Dataset::open(std::vector<WeightedPath>{{path}}, on_error);
  dataset.select(std::vector<std::string>{"text"});
  dataset.measure_store();
  const RowSubset subset = RowSubset::all(dataset.rows());
  auto loader = std::make_unique<Loader>(std::move(dataset), subset,
                                         ExampleEncoder({.columns = {.format = RowFormat::text},
                                                         .samples = {.max_length = 256},
                                                         .texts = {.tokenize = tokenize_bytes}}),
                                         LoaderOptions{.effective = kBatch, .epochs = 1, .order = order});
  loader->store_rows(path.parent_path(), {});
  return loader;
}

// The texts of an epoch from a position on, as the training loop gets them.
std::vector<std::string> texts_of(Loader& loader, const DataPosition& from = {}) {
  std::vector<std::string> texts;
  loader.start(from);
  while (const EffectiveBatch* batch = loader.next())
    for (int64_t i = 0; i < batch->sequences(); ++i) {
      std::string& text = texts.emplace_back();
      for (const int32_t id : batch->ids(i)) text += static_cast<char>(id);
      text.pop_back();  // the end of the text
    }
  return texts;
}

// Pearson's statistic of the classes in each window of 1,000 steps; 4 degrees of freedom, so that 18.5 has a
// probability of a thousandth.
double largest_chi_square(const std::vector<std::string>& texts) {
  constexpr size_t kWindow = 1000 * kBatch;
  double largest = 0;
  for (size_t first = 0; first + kWindow <= texts.size(); first += kWindow) {
    std::array<double, kClasses> counts{};
    for (size_t i = first; i < first + kWindow; ++i) ++counts[static_cast<size_t>(texts[i][1] - '0')];
    double sum = 0;
    for (const double count : counts) sum += std::pow(count - kWindow / 5.0, 2) / (kWindow / 5.0);
    largest = std::max(largest, sum);
  }
  return largest;
}

TEST(FullShuffle, visits_rows_sorted_by_class_in_proportion_whatever_the_file) {
  const TestFolder folder;
  std::vector<std::string> first;
  for (const auto& path : sorted_files(folder)) {
    const std::vector<std::string> texts = texts_of(*load_texts(path, {.window_bytes = kSmallWindow}));
    ASSERT_EQ(texts.size(), static_cast<size_t>(kRows));
    EXPECT_LT(largest_chi_square(texts), 18.5) << path;
    if (first.empty()) first = texts;
    EXPECT_TRUE(texts == first) << path;
  }
  std::vector<std::string> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::unique(sorted.begin(), sorted.end()), sorted.end());
  // The same order as of a data set that is held whole, as it always was.
  EXPECT_TRUE(texts_of(*load_texts(folder.path() / "a.jsonl", {})) == first);
  // The texts that the test would see in an order of windows.
  const auto in_windows = texts_of(
      *load_texts(folder.path() / "one.parquet", {.shuffle = Shuffle::window, .window_bytes = kSmallWindow}));
  EXPECT_GT(largest_chi_square(in_windows), 1000);
}

TEST(FullShuffle, goes_on_anywhere_and_holds_little) {
  const TestFolder folder;
  const std::vector<std::filesystem::path> files = sorted_files(folder);
  for (const std::filesystem::path& path : {files[0], files[1], files[4]}) {
    const auto whole = load_texts(path, {.window_bytes = kSmallWindow});
    const std::vector<std::string> texts = texts_of(*whole);
    const auto resumed = load_texts(path, {.window_bytes = kSmallWindow});
    const std::vector<std::string> rest = texts_of(*resumed, {0, 8000});
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), texts.begin() + 8000, texts.end())) << path;
    EXPECT_LT(whole->peak_arrow_bytes(), 8 * kMiB) << path;
  }
}

TEST(FullShuffle, stores_only_rows_whose_files_cannot_give_one_alone) {
  const TestFolder folder;
  for (const auto& path : sorted_files(folder)) {
    Dataset dataset = Dataset::open(std::vector{path});
    dataset.select(std::vector<std::string>{"text"});
    const bool is_stored = path.filename() == "one.parquet";
    const RowAccess access = plan_access(dataset, {.window_bytes = kSmallWindow});
    EXPECT_EQ(access.kind, is_stored ? AccessKind::stored : AccessKind::alone) << path;
    EXPECT_LE(access.held_bytes, 4 * kMiB);
    EXPECT_EQ(access.store_bytes > 0, is_stored);
    EXPECT_EQ(plan_access(dataset, {}).kind, AccessKind::held);  // less than a window of 12 MiB
    EXPECT_EQ(plan_access(dataset, {.shuffle = Shuffle::window, .window_bytes = kSmallWindow}).kind,
              AccessKind::held);
    if (!is_stored) continue;
    EXPECT_TRUE(access.exact);  // by the footer's size statistics
    const auto loader = load_texts(path, {.window_bytes = kSmallWindow});
    EXPECT_EQ(loader->stored_bytes(), access.store_bytes);
  }
}

// The rows of a packed text come in the order of the text, by whatever way they are reached.
TEST(PackedRows, have_the_order_of_the_text_itself) {
  const TestFolder folder;
  std::string lines;
  for (int64_t row = 0; row < kRows; ++row) lines += R"({"text": ")" + sorted_text(row) + "\"}\n";
  const size_t half = lines.size() / 2;  // within a row
  const auto plain = folder.write("a.jsonl", lines);
  const auto packed =
      folder.write("b.jsonl.gz", packed_by_gzip(lines.substr(0, half)) + packed_by_gzip(lines.substr(half)));
  for (const OrderOptions& order : {OrderOptions{}, OrderOptions{.window_bytes = kSmallWindow},
                                    OrderOptions{.shuffle = Shuffle::window, .window_bytes = kSmallWindow},
                                    OrderOptions{.shuffle = Shuffle::off, .window_bytes = kSmallWindow}}) {
    const auto loader = load_texts(packed, order);
    EXPECT_TRUE(texts_of(*loader) == texts_of(*load_texts(plain, order)));
    // Each window would be a pass over the file.
    const bool stored = order.window_bytes == kSmallWindow && order.shuffle != Shuffle::off;
    EXPECT_EQ(loader->stored_bytes() > 0, stored);
  }
}

TEST(FullShuffle, names_rows_of_a_scratch_file_that_cannot_be_read) {
  const TestFolder folder;
  constexpr int64_t kBad = 5'345, kNull = 7'000;
  arrow::StringBuilder builder;
  for (int64_t row = 0; row < kRows; ++row)
    must(row == kNull ? builder.AppendNull() : builder.Append(row == kBad ? "\xFF" : sorted_text(row)));
  const auto path = write_parquet(folder.path() / "a.parquet", {{"text", builder.Finish().ValueOrDie()}});
  const auto stops = load_texts(path, {.window_bytes = kSmallWindow});
  EXPECT_GT(stops->stored_bytes(), 0);
  EXPECT_THAT(message_of<DamagedError>([&] { texts_of(*stops); }),
              testing::AnyOf(HasSubstr(path.string() + ": row 5345: 'text' is not valid UTF-8."),
                             HasSubstr(path.string() + ": row 7000: 'text' is null.")));
  const auto skips = load_texts(path, {.window_bytes = kSmallWindow}, RowErrors::skip);
  EXPECT_EQ(texts_of(*skips).size(), static_cast<size_t>(kRows - 2));
}

TEST(RowStore, gives_back_what_was_put_in) {
  const TestFolder folder;
  const std::vector<StoredAs> columns = {StoredAs::text, StoredAs::ids, StoredAs::json};
  std::vector<Row> rows(3, Row(3));
  rows[0][0].text = "zwei ü";
  rows[0][1].ids = {1, -100, std::numeric_limits<int32_t>::max()};
  rows[0][2].json = {{"z", {1, 2.5, nullptr}}, {"a", "x"}};
  rows[2][2].json = std::numeric_limits<double>::quiet_NaN();
  int64_t bytes = 0;
  for (const Row& row : rows) bytes += stored_value_bytes(row, columns);
  RowStore store(folder.path(), 4, row_store_bytes(4, columns.size(), bytes), "");
  for (const Row& row : rows) store.add(row, columns);
  store.add_damaged("a.parquet: row 3: 'text' is null.");
  store.finish();
  EXPECT_EQ(store.bytes_on_disk(), row_store_bytes(4, columns.size(), bytes));
  Row cells;
  for (const size_t row : {2U, 0U, 1U}) {
    store.load(static_cast<int64_t>(row), "here")->read(0, cells);
    EXPECT_EQ(cells[0].text, rows[row][0].text);
    EXPECT_EQ(cells[1].ids, rows[row][1].ids);
    EXPECT_EQ(cells[2].json.dump(), rows[row][2].json.dump());
  }
  store.load(2, "here")->read(0, cells);
  EXPECT_TRUE(std::isnan(cells[2].json.get<double>()));
  const auto damaged = store.load(3, "here");
  EXPECT_EQ(message_of<DamagedError>([&] { damaged->read(0, cells); }), "a.parquet: row 3: 'text' is null.");
}

TEST(RowStore, needs_its_bytes_on_the_disk_and_takes_no_more) {
  const TestFolder folder;
  EXPECT_THAT(
      message_of<DoesNotFitError>([&] { RowStore(folder.path(), 1, int64_t{1} << 60, "read it elsewhere"); }),
      HasSubstr("on another disk with --set output=FOLDER, or read it elsewhere"));
  RowStore store(folder.path(), 2, row_store_bytes(2, 1, 8), "");
  Row row(1);
  row[0].text = std::string(100'000, 'x');
  EXPECT_THAT(message_of<DamagedError>([&] { store.add(row, {StoredAs::text}); }),
              HasSubstr("the rows take more than"));
}

}  // namespace
}  // namespace plimsoll
