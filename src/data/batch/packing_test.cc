// Rows packed into sequences, rows that are skipped, and what is counted before a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <set>

#include "base/error.h"
#include "data/batch/loader.h"
#include "data/batch/micro_steps.h"
#include "data/batch/row_reader.h"
#include "data/batch/statistics.h"
#include "data/files/cell.h"
#include "data/rows/test_data.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kPackedEos = 7;

ExampleEncoder text_encoder(int64_t max_length, Truncation side = Truncation::right) {
  return ExampleEncoder({.columns = {.format = RowFormat::text},
                         .samples = {.max_length = max_length},
                         .truncation = side,
                         .texts = {.tokenize = tokenize_bytes, .eos = kPackedEos},
                         .train_on_prompt = true});
}

// Texts of 1 to 12 bytes, each of one letter: 2 to 13 tokens with their end.
std::string text_lines(int64_t rows) {
  std::string lines;
  for (int64_t row = 0; row < rows; ++row)
    lines += R"({"text": ")" +
             std::string(static_cast<size_t>(1 + row * 7 % 12), static_cast<char>('a' + row % 26)) + "\"}\n";
  return lines;
}

Dataset open_texts(const std::filesystem::path& path, RowErrors on_error = RowErrors::stop) {
  Dataset dataset = Dataset::open(std::vector{WeightedPath{path}}, on_error);
  dataset.select(std::vector<std::string>{"text"});
  return dataset;
}

std::unique_ptr<Loader> make_loader(const std::filesystem::path& path, const LoaderOptions& options,
                                    RowErrors on_error = RowErrors::stop) {
  Dataset dataset = open_texts(path, on_error);
  const RowSubset subset = RowSubset::all(dataset.rows());
  return std::make_unique<Loader>(std::move(dataset), subset, text_encoder(16), options);
}

TEST(Packer, a_row_goes_to_the_first_sequence_with_room) {
  Packer packer(2, {10, 3});
  EXPECT_EQ(packer.place(6), 0);
  EXPECT_EQ(packer.place(5), 1);
  EXPECT_EQ(packer.place(4), 0);
  EXPECT_EQ(packer.place(1), 1);
  EXPECT_EQ(packer.place(1), 1);
  EXPECT_EQ(packer.place(1), -1) << "a sequence holds three documents here";
  packer.clear();
  EXPECT_EQ(packer.place(10), 0);
  Packer alone(2, {10, 1});
  EXPECT_EQ(alone.place(1), 0);
  EXPECT_EQ(alone.place(1), 1);
  EXPECT_EQ(alone.place(1), -1);
}

TEST(Packing, every_row_is_visited_once_whole_and_beside_no_other) {
  const TestFolder folder;
  constexpr int64_t kRows = 300;
  const auto path = folder.write("a.jsonl", text_lines(kRows));
  const auto loader = make_loader(path, {.effective = 3, .packing = true, .epochs = 1});
  loader->start({});
  MicroSteps micro_steps({2}, {16, packed_documents(16)}, 3);
  std::set<int64_t> rows;
  int64_t steps = 0;
  while (const EffectiveBatch* batch = loader->next()) {
    ++steps;
    EXPECT_LE(batch->packed_sequences(), 3);
    int64_t documents = 0;
    micro_steps.cut(*batch);
    for (int64_t i = 0; i < micro_steps.count(); ++i) {
      const MicroBatch& micro = micro_steps.fill(i);
      documents += micro.live_sequences;
      for (int64_t d = 0; d < micro.live_sequences; ++d) {
        const auto begin = static_cast<size_t>(micro.seq_starts[static_cast<size_t>(d)]);
        const auto end = static_cast<size_t>(micro.seq_starts[static_cast<size_t>(d) + 1]);
        EXPECT_EQ(micro.input_ids[end - 1], kPackedEos);
        EXPECT_EQ(micro.labels[end - 1], kIgnoreLabel)
            << "the next document's first token is nobody's target";
        for (size_t t = begin; t < end; ++t) EXPECT_EQ(micro.positions[t], static_cast<int32_t>(t - begin));
        for (size_t t = begin; t + 2 < end; ++t) EXPECT_EQ(micro.input_ids[t], micro.input_ids[t + 1]);
      }
    }
    EXPECT_EQ(documents, batch->sequences());
    for (int64_t i = 0; i < batch->sequences(); ++i) EXPECT_TRUE(rows.insert(batch->row(i)).second);
  }
  EXPECT_EQ(rows.size(), static_cast<size_t>(kRows));
  // 7.5 tokens a row in sequences of 16: at most a sixth is lost.
  EXPECT_LE(steps, kRows * 15 / 2 * 6 / 5 / (3 * 16) + 2);
}

// Every text is trained from its second token on, and begins as others do.
TEST(Packing, documents_of_a_micro_step_share_what_they_begin_with) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", text_lines(78));
  const auto loader = make_loader(path, {.effective = 8, .packing = true, .epochs = 1});
  loader->start({});
  MicroSteps micro_steps({4}, {16, packed_documents(16), 0, true}, 8),
      apart({4}, {16, packed_documents(16)}, 8);
  int64_t shared = 0;
  while (const EffectiveBatch* batch = loader->next()) {
    micro_steps.cut(*batch);
    apart.cut(*batch);
    ASSERT_EQ(micro_steps.count(), apart.count());
    for (int64_t i = 0; i < micro_steps.count(); ++i) {
      const MicroBatch& micro = micro_steps.fill(i);
      EXPECT_EQ(micro.input_ids, apart.fill(i).input_ids) << "in the same places";
      std::set<std::vector<int32_t>> prefixes;
      for (int64_t d = 0; d < micro.live_sequences; ++d) {
        const auto ids = micro.input_ids.begin();
        const auto begin = ids + micro.seq_starts[static_cast<size_t>(d)];
        for (auto end = begin; end != ids + micro.seq_starts[static_cast<size_t>(d) + 1];)
          prefixes.insert({begin, ++end});
      }
      EXPECT_EQ(micro.tree->tokens(), std::ssize(prefixes)) << "those that are learnt among them";
      shared += micro.live_tokens - micro.tree->tokens();
    }
  }
  EXPECT_GT(shared, 20);
}

TEST(Packing, resuming_at_any_step_goes_on_as_if_it_had_not_stopped) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", text_lines(100));
  const LoaderOptions options{.effective = 2, .packing = true, .epochs = 2};
  const auto loader = make_loader(path, options);
  struct Step {
    DataPosition next;
    std::vector<int32_t> ids;
  };
  const auto rest = [&](const DataPosition& position) {
    std::vector<Step> steps;
    loader->start(position);
    while (const EffectiveBatch* batch = loader->next()) {
      steps.push_back({batch->next, {}});
      for (int64_t i = 0; i < batch->sequences(); ++i)
        steps.back().ids.insert(steps.back().ids.end(), batch->ids(i).begin(), batch->ids(i).end());
    }
    return steps;
  };
  const std::vector<Step> whole = rest({});
  for (size_t stop = 0; stop + 1 < whole.size(); stop += 3) {
    const std::vector<Step> again = rest(whole[stop].next);
    ASSERT_EQ(again.size(), whole.size() - stop - 1);
    for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].ids, whole[stop + 1 + i].ids);
  }
  Dataset dataset = open_texts(path);
  const auto counted = [&](double epochs) {
    return count_packed_steps(dataset, RowSubset::all(100), text_encoder(16), options, epochs);
  };
  EXPECT_EQ(counted(2), static_cast<int64_t>(whole.size()));
  const int64_t first = counted(1), second = counted(2) - first;
  EXPECT_EQ(counted(0.5), (first + 1) / 2) << "a part of an epoch is rounded up";
  EXPECT_EQ(counted(1.25), first + (second + 3) / 4);
}

ExampleEncoder uncut_encoder(int64_t max_length) {
  return ExampleEncoder({.columns = {.format = RowFormat::text},
                         .samples = {.max_length = max_length},
                         .texts = {.tokenize = tokenize_bytes, .eos = kPackedEos},
                         .train_on_prompt = true,
                         .uncut = true});
}

struct JoinedStep {
  std::vector<std::vector<int32_t>> ids;
  DataPosition next;
  bool ends_epoch = false;
};

std::vector<JoinedStep> joined_steps(const std::filesystem::path& path, const LoaderOptions& options,
                                     DataPosition from = {}) {
  Dataset dataset = open_texts(path);
  const RowSubset subset = RowSubset::all(dataset.rows());
  Loader loader(std::move(dataset), subset, uncut_encoder(16), options);
  loader.start(from);
  std::vector<JoinedStep> steps;
  while (const EffectiveBatch* batch = loader.next()) {
    steps.push_back({{}, batch->next, batch->ends_epoch});
    for (int64_t i = 0; i < batch->sequences(); ++i) {
      EXPECT_EQ(batch->labels(i)[3], batch->ids(i)[3]) << "every token is a target";
      steps.back().ids.emplace_back(batch->ids(i).begin(), batch->ids(i).end());
    }
    EXPECT_EQ(batch->target_tokens(), 15 * batch->sequences());
  }
  return steps;
}

// Rows of 2 to 13 tokens, and one of 101 that several sequences and steps lie in.
TEST(Joined, sequences_are_the_stream_of_all_rows_cut_at_their_length) {
  const TestFolder folder;
  const auto path = folder.write(
      "a.jsonl", text_lines(60) + "{\"text\": \"" + std::string(100, 'z') + "\"}\n" + text_lines(41));
  const LoaderOptions options{.effective = 3, .joined = true, .epochs = 2, .order = {.seed = 3}};
  const std::vector<JoinedStep> steps = joined_steps(path, options);
  // The same rows one by one, in the same order.
  Dataset dataset = open_texts(path);
  const RowSubset subset = RowSubset::all(102);
  RowReader reader(dataset, subset, options.order);
  std::vector<std::vector<int32_t>> expected;
  Example row;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int32_t> stream;
    for (int64_t i = 0; i < 102; ++i) {
      reader.encode(epoch, i, uncut_encoder(16), row);
      stream.insert(stream.end(), row.ids.begin(), row.ids.end());
    }
    for (size_t at = 0; at + 16 <= stream.size(); at += 16)
      expected.emplace_back(stream.begin() + static_cast<std::ptrdiff_t>(at),
                            stream.begin() + static_cast<std::ptrdiff_t>(at + 16));
  }
  std::vector<std::vector<int32_t>> found;
  int64_t ends = 0;
  for (const JoinedStep& step : steps) {
    EXPECT_FALSE(step.ids.empty()) << "a step without a sequence";
    found.insert(found.end(), step.ids.begin(), step.ids.end());
    ends += step.ends_epoch ? 1 : 0;
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(ends, 2);
  EXPECT_EQ(count_packed_steps(dataset, subset, uncut_encoder(16), options, 2), std::ssize(steps));
  for (size_t stop = 0; stop + 1 < steps.size(); stop += 5) {
    const std::vector<JoinedStep> rest = joined_steps(path, options, steps[stop].next);
    ASSERT_EQ(rest.size(), steps.size() - stop - 1);
    for (size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(rest[i].ids, steps[stop + 1 + i].ids);
  }
}

TEST(Joined, sequences_may_begin_as_the_tokenizer_begins_a_text) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", text_lines(40));
  LoaderOptions options{.effective = 2, .joined = true, .epochs = 1};
  const std::vector<JoinedStep> plain = joined_steps(path, options);
  options.joined_begin = {5};
  const std::vector<JoinedStep> begun = joined_steps(path, options);
  ASSERT_EQ(begun.size(), plain.size());
  for (size_t step = 0; step < plain.size(); ++step)
    for (size_t i = 0; i < plain[step].ids.size(); ++i) {
      std::vector<int32_t> ids = plain[step].ids[i];
      ids.front() = 5;
      EXPECT_EQ(begun[step].ids[i], ids);
    }
}

TEST(Joined, rows_without_a_whole_sequence_and_places_beyond_a_row_are_refused) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", text_lines(2));
  const LoaderOptions options{.effective = 2, .joined = true, .epochs = 1};
  EXPECT_THAT(message_of<UsageError>([&] { joined_steps(path, options); }),
              HasSubstr("fewer tokens than a sequence of data.packing: joined"));
  EXPECT_THAT(message_of<UsageError>([&] {
                joined_steps(path, options, {0, 1, 500});
              }),
              HasSubstr("the data changed since the checkpoint was written"));
}

TEST(RowErrors, bad_rows_are_skipped_and_counted_or_end_the_run) {
  const TestFolder folder;
  const auto path =
      folder.write("a.jsonl", text_lines(5) + "{\"text\": 7}\n{\"text\": \"tw\n" + text_lines(3) + "{}\n");
  const LoaderOptions options{.effective = 20, .epochs = 1, .order = {.shuffle = Shuffle::off}};
  const auto skipping = make_loader(path, options, RowErrors::skip);
  skipping->start({});
  const EffectiveBatch* batch = skipping->next();
  EXPECT_EQ(batch->sequences(), 8);
  EXPECT_EQ(batch->damaged_rows(), 3);
  EXPECT_EQ(batch->first_damage(), path.string() + ":6: 'text' is a number, a string is expected.");
  const auto stopping = make_loader(path, options);
  stopping->start({});
  EXPECT_THAT(message_of<DamagedError>([&] { stopping->next(); }), HasSubstr(":6: 'text' is a number"));
}

TEST(RowErrors, rows_of_a_damaged_parquet_page_are_skipped) {
  const TestFolder folder;
  const auto path =
      write_parquet(folder.path() / "a.parquet",
                    {{"text", text_column(40, [](int64_t row) { return "t" + std::to_string(row); })}}, 20);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4);
  file << std::string(40, '\xAA');  // the first row group's first page
  file.close();
  const LoaderOptions options{.effective = 40, .epochs = 1};
  const auto loader = make_loader(path, options, RowErrors::skip);
  loader->start({});
  const EffectiveBatch* batch = loader->next();
  EXPECT_EQ(batch->sequences(), 20);
  EXPECT_EQ(batch->damaged_rows(), 20);
  EXPECT_THAT(batch->first_damage(), HasSubstr("cannot be read as Parquet"));
  const auto stopping = make_loader(path, options);
  stopping->start({});
  EXPECT_THROW(stopping->next(), DamagedError);
}

TEST(RowErrors, data_of_damaged_rows_alone_is_refused_with_the_first_reason) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", "{\"text\": \"x\"}\n{\"text\": 1}\n");
  Dataset dataset = open_texts(path, RowErrors::skip);
  Loader loader(std::move(dataset), RowSubset::only(2, {1}), text_encoder(16), {.effective = 2, .epochs = 1});
  loader.start({});
  EXPECT_THAT(message_of<UsageError>([&] { loader.next(); }),
              HasSubstr("the first: " + path.string() + ":2: "));
}

TEST(Truncation, takes_the_side_that_is_asked_for) {
  Example example;
  Row row(1);
  row[0].text = "abcdef";
  text_encoder(4).encode(
      row, [] { return ""; }, example);
  EXPECT_THAT(example.ids, ElementsAre('a', 'b', 'c', 'd'));
  text_encoder(4, Truncation::left)
      .encode(
          row, [] { return ""; }, example);
  EXPECT_THAT(example.ids, ElementsAre('d', 'e', 'f', kPackedEos));
  EXPECT_EQ(example.targets, 3);
  EXPECT_EQ(example.whole_length, 7);
}

// Several units of a MiB in two files, weights that repeat rows and leave some out, rows left out, and
// damage.
struct ManyRows {
  Dataset dataset;
  RowSubset rows;
};
ManyRows many_rows(const TestFolder& folder, RowErrors on_error) {
  const std::string damage = "{\"text\": 7}\n", other = "{\"text\": [1]}\n";
  const auto first = folder.write("a.jsonl", text_lines(60'000) + damage + text_lines(60'000) + other);
  const auto second = folder.write("b.jsonl", text_lines(50'000) + other + text_lines(50'000));
  Dataset dataset = Dataset::open(std::vector<WeightedPath>{{first, 1.25}, {second, 0.5}}, on_error);
  dataset.select(std::vector<std::string>{"text"});
  return {std::move(dataset), RowSubset::all_but(220'003, {0, 7, 130'000})};
}

TEST(Statistics, are_the_same_for_any_number_of_threads) {
  const TestFolder folder;
  ManyRows data = many_rows(folder, RowErrors::skip);
  EXPECT_GT(data.dataset.units().size(), 4U);
  const auto measured = [&](int64_t threads) {
    std::vector<int64_t> told;
    const DataStatistics all = measure_data(
        data.dataset, data.rows, text_encoder(8), [&](int64_t rows) { told.push_back(rows); }, threads);
    EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
    std::vector<int64_t> numbers = {
        all.rows,      all.tokens,         all.target_tokens, all.labelled,          all.squares,
        all.longest,   all.longest_sample, all.usual.tokens,  all.usual.rows_longer, all.largest.size,
        all.truncated, all.skipped,        all.damaged,       std::ssize(told),      all.common_begin};
    for (const RowSize& size : all.sizes) numbers.push_back(size.tokens);
    return std::pair(numbers, all.first_damage);
  };
  const auto alone = measured(1);
  EXPECT_GE(alone.first[12], 2);
  EXPECT_THAT(alone.second, HasSubstr("a.jsonl:60001: 'text' is a number"));
  for (const int64_t threads : {2, 5}) EXPECT_EQ(measured(threads), alone);
}

// Also of those that an epoch leaves out, and without those that no batch takes.
TEST(Statistics, all_rows_begin_with_what_every_one_of_them_does) {
  const TestFolder folder;
  const auto begin_of = [&](const std::string& last, double weight) {
    const auto path = folder.write("a.jsonl", "{\"text\": \"abcdef\"}\n{\"text\": \"abcdxyz\"}\n" + last);
    Dataset dataset = Dataset::open(std::vector<WeightedPath>{{path, weight}}, RowErrors::skip);
    dataset.select(std::vector<std::string>{"text"});
    const RowSubset rows = RowSubset::all(dataset.rows());
    const int64_t begin = measure_data(dataset, rows, text_encoder(16)).common_begin;
    EXPECT_EQ(sample_data(dataset, rows, text_encoder(16)).common_begin, begin);
    return begin;
  };
  EXPECT_EQ(begin_of("", 1), 4);
  EXPECT_EQ(begin_of("{\"text\": \"abz\"}\n", 0.4), 2);
  EXPECT_EQ(begin_of("{\"text\": 7}\n", 1), 4) << "damaged";
  EXPECT_EQ(begin_of("{\"text\": \"abc\"}\n", 1), 3) << "behind it stands the end of text";
}

// Rows that the first epoch leaves out are read in a later one.
TEST(Statistics, the_largest_row_is_of_all_that_any_epoch_reads) {
  const TestFolder folder;
  const auto largest = [&](const std::string& last, double weight) {
    const auto path = folder.write("a.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"abd\"}\n" + last);
    Dataset dataset = Dataset::open(std::vector<WeightedPath>{{path, weight}}, RowErrors::skip);
    dataset.select(std::vector<std::string>{"text"});
    return measure_data(dataset, RowSubset::all(dataset.rows()), text_encoder(16)).largest.size;
  };
  const std::string row = "{\"text\": \"" + std::string(5000, 'x') + "\"}\n";
  EXPECT_GT(largest(row, 1), 5000);
  EXPECT_LT(largest("", 1), 5000);
  EXPECT_EQ(largest(row, 0.4), largest(row, 1));
}

TEST(Statistics, rows_that_fit_and_packed_steps_are_the_same_for_any_number_of_threads) {
  const TestFolder folder;
  ManyRows data = many_rows(folder, RowErrors::skip);
  const LoaderOptions options{.effective = 16, .packing = true};
  const auto kept = [&](int64_t threads) {
    const RowSubset rows = rows_that_fit(data.dataset, data.rows, text_encoder(8), threads);
    return std::pair(rows.size(), rows.row(rows.size() / 2));
  };
  const auto steps = [&](int64_t threads) {
    return count_packed_steps(data.dataset, data.rows, text_encoder(16), options, 2, threads);
  };
  EXPECT_LT(kept(1).first, data.rows.size());
  EXPECT_EQ(kept(4), kept(1));
  EXPECT_EQ(steps(4), steps(1));
}

TEST(Statistics, the_first_row_that_cannot_be_read_ends_it_for_any_number_of_threads) {
  const TestFolder folder;
  ManyRows data = many_rows(folder, RowErrors::stop);
  for (const int64_t threads : {1, 2, 5})
    EXPECT_THAT(message_of<DamagedError>(
                    [&] { measure_data(data.dataset, data.rows, text_encoder(8), {}, threads); }),
                HasSubstr("a.jsonl:60001: 'text' is a number"))
        << threads;
}

TEST(Statistics, a_sample_of_many_rows_is_near_the_truth) {
  const TestFolder folder;
  Dataset few = open_texts(folder.write("few.jsonl", text_lines(100)));
  const DataStatistics all = sample_data(few, RowSubset::all(100), text_encoder(8));
  EXPECT_EQ(all.rows, 100);
  EXPECT_EQ(all.longest, 13);
  Dataset many = open_texts(folder.write("many.jsonl", text_lines(60'000)));
  const DataStatistics sample = sample_data(many, RowSubset::all(60'000), text_encoder(8));
  EXPECT_LE(sample.rows, 2048);
  EXPECT_GE(sample.rows, 2000);
  const DataStatistics truth = measure_data(many, RowSubset::all(60'000), text_encoder(8));
  EXPECT_NEAR(sample.share_truncated(), truth.share_truncated(), 0.03);
  EXPECT_NEAR(static_cast<double>(sample.tokens) / static_cast<double>(sample.rows),
              static_cast<double>(truth.tokens) / static_cast<double>(truth.rows), 0.2);
}

}  // namespace
}  // namespace plimsoll
