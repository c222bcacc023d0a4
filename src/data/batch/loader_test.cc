#include "data/batch/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "base/error.h"
#include "data/batch/micro_steps.h"
#include "data/rows/test_data.h"
#include "files/test_allocations.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

constexpr int32_t kLoaderEos = 99;

struct LoaderSetup {
  int64_t max_length = 16;
  LoaderOptions options;
};

std::unique_ptr<Loader> make_loader(const std::filesystem::path& path, const LoaderSetup& setup) {
  Dataset dataset = Dataset::open(std::vector{path});
  dataset.select(std::vector<std::string>{"prompt", "response"});
  const RowSubset subset = RowSubset::all(dataset.rows());
  ExampleEncoder encoder({.columns = {.format = RowFormat::prompt_response},
                          .samples = {.max_length = setup.max_length},
                          .texts = {.tokenize = tokenize_bytes, .eos = kLoaderEos}});
  return std::make_unique<Loader>(std::move(dataset), subset, std::move(encoder), setup.options);
}

std::vector<int32_t> tokens_of(const EffectiveBatch& batch) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < batch.sequences(); ++i)
    tokens.insert(tokens.end(), batch.ids(i).begin(), batch.ids(i).end());
  return tokens;
}

TEST(Loader, an_epoch_ends_with_a_smaller_batch) {
  const TestFolder folder;
  const auto loader =
      make_loader(folder.write("a.jsonl", prompt_lines(10)), {.options = {.effective = 4, .epochs = 2}});
  EXPECT_EQ(loader->steps_per_epoch(), 3);
  loader->start({});
  std::vector<int64_t> sizes;
  int64_t epoch_ends = 0;
  while (const EffectiveBatch* batch = loader->next()) {
    sizes.push_back(batch->sequences());
    epoch_ends += batch->ends_epoch ? 1 : 0;
  }
  EXPECT_THAT(sizes, testing::ElementsAre(4, 4, 2, 4, 4, 2));
  EXPECT_EQ(epoch_ends, 2);
  EXPECT_EQ(loader->next(), nullptr);
}

TEST(Loader, resuming_continues_as_if_it_had_not_stopped) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", prompt_lines(10));
  const LoaderSetup setup = {.options = {.effective = 4}};
  const auto whole = make_loader(path, setup);
  whole->start({});
  std::vector<std::vector<int32_t>> batches;
  std::vector<DataPosition> positions = {{}};
  for (int i = 0; i < 8; ++i) {
    const EffectiveBatch* batch = whole->next();
    batches.push_back(tokens_of(*batch));
    positions.push_back(batch->next);
  }
  EXPECT_EQ(positions[3], (DataPosition{1, 0}));
  EXPECT_NE(batches[0], batches[3]);  // another epoch, another order
  const auto resumed = make_loader(path, setup);
  for (const size_t start : {7U, 4U, 0U, 2U}) {
    resumed->start(positions[start]);
    for (size_t i = start; i < 8; ++i)
      EXPECT_EQ(tokens_of(*resumed->next()), batches[i]) << start << " " << i;
  }
  EXPECT_THROW(resumed->start({0, 10}), UsageError);
}

TEST(Loader, windows_of_parquet_give_every_row_once) {
  const TestFolder folder;
  constexpr int64_t kRows = 3000;
  const auto path = write_parquet(
      folder.path() / "a.parquet",
      {{"prompt", text_column(kRows, [](int64_t) { return "p"; })},
       {"response",
        text_column(kRows, [](int64_t row) { return std::to_string(row) + std::string(1000, ' '); })}},
      250);
  const auto loader = make_loader(
      path,
      {.max_length = 1100,
       .options = {
           .effective = 7, .epochs = 1, .order = {.shuffle = Shuffle::window, .window_bytes = 600'000}}});
  loader->start({});
  std::vector<bool> seen(kRows);
  int64_t in_order = 0;
  int64_t last = 0;
  while (const EffectiveBatch* batch = loader->next()) {
    for (int64_t i = 0; i < batch->sequences(); ++i) {
      std::string text;
      for (const int32_t id : batch->ids(i).subspan(1, 5)) text += static_cast<char>(id);
      const auto row = std::stoll(text);
      EXPECT_FALSE(seen[static_cast<size_t>(row)]);
      seen[static_cast<size_t>(row)] = true;
      in_order += row == last + 1 ? 1 : 0;
      last = row;
    }
  }
  EXPECT_THAT(seen, testing::Each(true));
  EXPECT_LT(in_order, 60);
  EXPECT_LT(loader->peak_arrow_bytes(), 4 * kMiB);
}

TEST(Loader, taking_batches_allocates_nothing) {
  const TestFolder folder;
  const auto loader = make_loader(folder.write("a.jsonl", prompt_lines(100)), {.options = {.effective = 8}});
  MicroSteps micro_steps({3, 32}, {16, 1}, 8);
  loader->start({});
  const EffectiveBatch* batch = loader->next();
  const int64_t before = heap_allocations();
  int64_t tokens = 0;
  for (int i = 0; i < 50; ++i) {
    batch = loader->next();
    micro_steps.cut(*batch);
    for (int64_t step = 0; step < micro_steps.count(); ++step) tokens += micro_steps.fill(step).live_tokens;
  }
  EXPECT_EQ(heap_allocations(), before);
  EXPECT_GT(tokens, 0);
}

// The error waits its turn: both batches before the bad line arrive, whatever the threads' timing.
TEST(Loader, a_bad_row_is_reported_after_the_batches_before_it) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", prompt_lines(5) + "oops\n");
  const auto loader =
      make_loader(path, {.options = {.effective = 2, .prefetch = 5, .order = {.shuffle = Shuffle::off}}});
  loader->start({});
  EXPECT_EQ(loader->next()->sequences(), 2);
  EXPECT_EQ(loader->next()->sequences(), 2);
  EXPECT_THAT(message_of<DamagedError>([&] { loader->next(); }),
              HasSubstr(path.string() + ":6: is not valid JSON"));
  EXPECT_THROW(loader->next(), DamagedError);
}

// The plan was made by a sample; rows below 256 KiB are always taken.
TEST(Loader, a_row_larger_than_planned_is_refused_by_its_number) {
  const TestFolder folder;
  const std::string row = R"({"prompt": "p", "response": ")" + std::string(300 * 1024, 'r') + "\"}\n";
  const auto path = folder.write("a.jsonl", prompt_lines(2) + row);
  const auto all = make_loader(
      path, {.options = {.effective = 3, .longest_row = 100, .order = {.shuffle = Shuffle::off}}});
  all->start({});
  EXPECT_EQ(all->next()->sequences(), 3) << "its file says how long it is";
  const auto parquet = write_parquet(
      folder.path() / "a.parquet",
      {{"prompt", text_column(3, [](int64_t) { return "p"; })},
       {"response", text_column(3, [](int64_t i) { return std::string(i == 2 ? 300 * 1024 : 1, 'r'); })}});
  const auto some = make_loader(
      parquet, {.options = {.effective = 3, .longest_row = 100, .order = {.shuffle = Shuffle::off}}});
  some->start({});
  EXPECT_THAT(message_of<DamagedError>([&] { some->next(); }),
              HasSubstr(parquet.string() + ": row 2: a row of 300 KiB"));
}

TEST(Loader, data_without_a_single_target_is_refused) {
  const TestFolder folder;
  const auto loader =
      make_loader(folder.write("a.jsonl", prompt_lines(3)), {.max_length = 2, .options = {.effective = 2}});
  loader->start({});
  EXPECT_EQ(loader->next()->target_tokens(), 0);
  EXPECT_THAT(message_of<UsageError>([&] { loader->next(); }),
              HasSubstr("no row has a token to learn within"));
}

TEST(Loader, stops_at_once_when_nobody_takes) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", prompt_lines(100));
  for (int i = 0; i < 20; ++i) {
    const auto loader = make_loader(path, {.options = {.effective = 4, .prefetch = 1}});
    loader->start({});
    if (i % 2 == 0) loader->next();
  }
  const auto loader = make_loader(path, {});
  EXPECT_THROW(loader->next(), InternalError);  // before start()
}

TEST(Loader, the_time_spent_waiting_is_measured) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", prompt_lines(4));
  Dataset dataset = Dataset::open(std::vector{path});
  dataset.select(std::vector<std::string>{"prompt", "response"});
  const auto slow = [](std::string_view text, std::vector<int32_t>& ids) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    tokenize_bytes(text, ids);
  };
  Loader loader(
      std::move(dataset), RowSubset::all(4),
      ExampleEncoder({.columns = {.format = RowFormat::prompt_response}, .texts = {.tokenize = slow}}),
      {.effective = 4});
  loader.start({});
  loader.next();
  // Four rows of two texts take 800 ms, of which this thread may be kept from waiting by other work.
  EXPECT_GE(loader.wait_seconds(), 0.03);
}

TEST(Loader, memory_is_planned_from_batch_length_and_window) {
  const TestFolder folder;
  Dataset dataset = Dataset::open(std::vector{folder.write("a.jsonl", prompt_lines(100))});
  dataset.select(std::vector<std::string>{"prompt", "response"});
  const RowSubset subset = RowSubset::all(100);
  const LoaderMemory small =
      plan_loader_memory(dataset, subset, {.max_length = 128}, {.effective = 16, .prefetch = 2});
  const LoaderMemory large =
      plan_loader_memory(dataset, subset, {.max_length = 256}, {.effective = 16, .prefetch = 5});
  EXPECT_EQ(small.queue_bytes, 3 * (2 * 16 * 128 * 4 + 16 * 4 + (3 * 16 + 2 * 16 + 1) * 8));
  EXPECT_EQ(large.queue_bytes, 6 * (2 * 16 * 256 * 4 + 16 * 4 + (3 * 16 + 2 * 16 + 1) * 8));
  EXPECT_EQ(small.rows_bytes, large.rows_bytes);
  EXPECT_EQ(small.resident_bytes(), small.queue_bytes + small.rows_bytes);
  EXPECT_GT(small.rows_bytes, static_cast<int64_t>(prompt_lines(100).size()));
  EXPECT_GE(small.data_bytes(), small.resident_bytes() + small.slack_bytes + (1 << 20));
}

}  // namespace
}  // namespace plimsoll
