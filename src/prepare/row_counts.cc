#include "prepare/row_counts.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/units.h"
#include "calibrate/rates_cache.h"
#include "data/encode/example.h"
#include "data/files/data_files.h"
#include "data/rows/row_order.h"
#include "files/atomic.h"
#include "recipe/effective.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVersion = 5;  // of what is counted

json file_key(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  const auto time = fs::last_write_time(file, error).time_since_epoch().count();
  return {fs::absolute(file).lexically_normal().string(), size, time};
}

// A key for what makes tokens of text, and for what a model asks of its rows; its weights are not read for
// that.
json model_key(const fs::path& folder) {
  static const std::set<std::string> kKinds = {".json", ".jinja", ".model", ".txt"};
  json files = json::array();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_regular_file(error) && kKinds.contains(entry.path().extension().string()))
      files.push_back(file_key(entry.path()));
  std::sort(files.begin(), files.end());
  return files;
}

fs::path counts_file(const fs::path& folder, const std::string& key) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "%08x.json", crc32c(std::as_bytes(std::span(key))));
  return folder / name.data();
}

// Each of the numbers under its name, for writing and for reading.
template <class Statistics, class Visit>
void each_number(Statistics& of, const Visit& visit) {
  visit("rows", of.rows);
  visit("tokens", of.tokens);
  visit("target_tokens", of.target_tokens);
  visit("labelled", of.labelled);
  visit("squares", of.squares);
  visit("longest", of.longest);
  visit("longest_sequence", of.longest_sequence);
  visit("longest_target", of.longest_target);
  visit("longest_sample", of.longest_sample);
  visit("longest_shared", of.longest_shared);
  visit("common_begin", of.common_begin);
  visit("longest_bytes", of.largest.size);
  visit("row_memory", of.largest.memory);
  visit("common_length", of.usual.tokens);
  visit("rows_longer", of.usual.rows_longer);
  visit("truncated", of.truncated);
  visit("skipped", of.skipped);
  visit("damaged", of.damaged);
}

// Files that are copied out of the cache may belong to other data: their numbers must at least go together.
bool is_sound(const DataStatistics& counts) {
  bool sound = counts.rows > 0 && !counts.sizes.empty();
  each_number(counts, [&](const char*, int64_t value) { sound = sound && value >= 0; });
  for (const RowSize& size : counts.sizes)
    sound = sound && size.tokens > 0 && size.targets >= 0 && size.tokens <= counts.longest_sample &&
            size.targets <= counts.longest_target && size.shared >= 0 && size.shared < size.tokens &&
            size.tokens - size.shared >= counts.common_begin &&
            size.tokens - size.shared <= counts.longest_shared;
  for (const double share : counts.shared) sound = sound && share >= 0 && share <= 1;
  return sound && counts.longest_sequence <= counts.longest_sample &&
         counts.longest_shared <= counts.longest_sample;
}

// The folder of the counts. Without a place for a cache, rows are counted each time.
std::optional<fs::path> counts_folder() {
  try {
    return cache_folder() / "rows";
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

}  // namespace

bool may_count(const Dataset& dataset) {
  constexpr int64_t kMost = 8 * kGiB;
  int64_t bytes = 0;
  for (const PlacedUnit& unit : dataset.units()) bytes += unit.bytes;
  return bytes <= kMost;
}

std::string counted_rows_key(const Recipe& recipe, const std::string& part) {
  json key = {{"version", kVersion}, {"part", part}, {"model", model_key(recipe.model)}};
  const json experiment = json::parse(experiment_fingerprint(recipe));
  for (const auto& [name, value] : experiment.items())
    for (const char* group : {"data.", "classify.", "reward.", "dpo.", "task", "seed", "model", "adapter"})
      if (name.starts_with(group)) key["recipe"][name] = value;
  std::vector<fs::path> paths;
  const bool apart = part == "eval" && recipe.data.eval.kind == EvalSource::Kind::path;
  if (apart) paths.emplace_back(recipe.data.eval.path);
  for (const TrainSource& source : recipe.data.train)
    if (!apart) paths.emplace_back(source.path);
  for (const fs::path& path : paths)
    for (const fs::path& file : data_files(path)) key["files"].push_back(file_key(file));
  return key.dump();
}

std::optional<DataStatistics> load_row_counts(const fs::path& folder, const std::string& key) {
  std::ifstream in(counts_file(folder, key), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const json file = read_json_text(text);
  try {
    if (!file.is_object() || file.at("key").get<std::string>() != key) return std::nullopt;
    DataStatistics counts;
    counts.of_all_rows = true;
    each_number(counts, [&](const char* name, int64_t& value) { value = get_whole<int64_t>(file, name); });
    counts.first_damage = file.at("first_damage").get<std::string>();
    for (const json& size : file.at("sizes"))
      counts.sizes.push_back(
          {get_whole<int64_t>(size.at(0)), get_whole<int64_t>(size.at(1)), get_whole<int64_t>(size.at(2))});
    counts.shared = file.at("shared").get<std::vector<double>>();
    return is_sound(counts) ? std::optional(std::move(counts)) : std::nullopt;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

void save_row_counts(const fs::path& folder, const std::string& key, const DataStatistics& counts) {
  json file = {{"key", key}, {"first_damage", counts.first_damage}, {"sizes", json::array()}};
  each_number(counts, [&](const char* name, int64_t value) { file[name] = value; });
  file["shared"] = counts.shared;
  for (const RowSize& size : counts.sizes) file["sizes"].push_back({size.tokens, size.targets, size.shared});
  try {
    fs::create_directories(folder);
    write_file_atomically(counts_file(folder, key), file.dump() + "\n");
  } catch (const Error&) {
  } catch (const fs::filesystem_error&) {
  }
}

namespace {

// Counts that were kept, or of every row where those are few or `counting` asks for it; else of a sample
// (`rows` says of how many).
DataStatistics count_rows(const Recipe& recipe, const std::string& part, DataSource& source,
                          const Counting& counting) {
  DataStatistics sample = sample_data(source.dataset, source.rows, source.encoder);
  if (sample.of_all_rows || recipe.data.packing || recipe.data.joined) return sample;
  const std::string key = counted_rows_key(recipe, part);
  const std::optional<fs::path> folder = counts_folder();
  if (auto known = folder ? load_row_counts(*folder, key) : std::nullopt) return *known;
  if (!counting.every_row || !may_count(source.dataset)) return sample;
  const auto rows = source.rows.size();
  DataStatistics all = measure_data(
      source.dataset, source.rows, source.encoder,
      [&](int64_t done) {
        if (counting.progress) counting.progress(done, rows);
      },
      counting.threads);
  if (counting.progress) counting.progress(rows, rows);
  if (folder) save_row_counts(*folder, key, all);
  return all;
}

// On average; with packing as many as fill its tokens.
double rows_of_step(const DataSource& train, const DataStatistics& sample) {
  const auto places = static_cast<double>(train.loader.effective);
  if (!(train.loader.packing || train.loader.joined) || sample.tokens == 0) return places;
  return places * static_cast<double>(train.encoder.samples().max_length * sample.rows) /
         static_cast<double>(sample.tokens);
}

// Bytes of the largest row to plan for. After a sample a run may meet larger ones, which it takes up to a
// size.
int64_t planned_row(const DataStatistics& counts) {
  return counts.of_all_rows ? counts.largest.size : std::max(counts.largest.size, kAlwaysPlannedRow);
}

std::optional<int64_t> planned_memory(const DataStatistics& counts) {
  return counts.of_all_rows ? std::optional(counts.largest.memory) : std::nullopt;
}

DataSummary summarise(DataSource& train, const DataStatistics& sample) {
  train.loader.longest_row = planned_row(sample);
  train.loader.row_memory = planned_memory(sample);
  // Rows of masked words learn in an epoch that hides some of theirs, be it not the first.
  if (sample.of_all_rows && sample.tokens == 0)
    refuse_without_targets(train.dataset.name(), train.encoder.samples(), sample.first_damage);
  const RowOrder order(train.dataset.units(), train.rows, train.loader.order);
  DataSummary summary;
  summary.rows = order.rows();
  summary.sampled_rows = sample.of_all_rows ? 0 : sample.rows;
  const double all =
      static_cast<double>(order.rows()) / static_cast<double>(std::max<int64_t>(1, sample.rows));
  const bool pairs = rule_of(train.encoder.samples().task.task).pairs;
  const int64_t seen = pairs ? sample.labelled : sample.target_tokens;
  summary.tokens = std::llround(static_cast<double>(sample.tokens) * all);
  summary.targets = std::llround(static_cast<double>(seen) * all);
  summary.row_length =
      static_cast<double>(sample.squares) / static_cast<double>(std::max<int64_t>(1, sample.tokens));
  if (train.loader.joined) summary.row_length = static_cast<double>(train.encoder.samples().max_length);
  summary.longest = sample.longest;
  summary.common_length = sample.usual.tokens;
  summary.rows_longer = sample.usual.rows_longer;
  summary.truncated_share = sample.share_truncated();
  summary.skipped_share = sample.share_of_rows(sample.skipped);
  summary.damaged_share = sample.share_of_rows(sample.damaged);
  summary.common_begin = sample.common_begin;
  summary.shared_share = shared_by(sample.shared, rows_of_step(train, sample));
  for (const PlacedUnit& unit : train.dataset.units())
    summary.bytes_per_epoch += std::llround(static_cast<double>(unit.bytes) * unit.weight);
  return summary;
}

}  // namespace

// A sample gives a plan the lengths of rows, a run only what it has read. With packing rows fill the longest
// sequence that there may be.
void measure_rows(const Recipe& recipe, const Counting& counting, bool full_rows, DataSetup& data) {
  const DataStatistics train = count_rows(recipe, "train", *data.train, counting);
  data.summary = summarise(*data.train, train);
  data.shared = train.shared;
  if (data.eval) data.eval->loader.longest_row = planned_row(train);
  if (full_rows) return;
  RowLengths lengths{recipe.data.max_length,
                     train.longest_sequence,
                     train.longest_target,
                     train.longest_sample,
                     train.longest_shared,
                     train.common_begin,
                     std::make_shared<const std::vector<RowSize>>(train.sizes)};
  bool known = train.of_all_rows || (!counting.every_row && may_count(data.train->dataset));
  if (train.of_all_rows) data.train->loader.longest_sample = train.longest_sample;
  if (data.eval) {
    const DataStatistics eval = count_rows(recipe, "eval", *data.eval, counting);
    data.eval->loader.longest_row = std::max(planned_row(train), planned_row(eval));
    data.eval->loader.row_memory = planned_memory(eval);
    known = known && (eval.of_all_rows || (!counting.every_row && may_count(data.eval->dataset)));
    if (eval.of_all_rows) data.eval->loader.longest_sample = eval.longest_sample;
    lengths.longest_sequence = std::max(lengths.longest_sequence, eval.longest_sequence);
    lengths.longest_target = std::max(lengths.longest_target, eval.longest_target);
    lengths.longest_sample = std::max(lengths.longest_sample, eval.longest_sample);
    lengths.longest_shared = std::max(lengths.longest_shared, eval.longest_shared);
    // A micro-step holds rows of one of them.
    lengths.common_begin = std::min(lengths.common_begin, eval.common_begin);
  }
  if (known && !recipe.data.packing && !recipe.data.joined && lengths.longest_sample > 0)
    data.lengths = std::move(lengths);
}

}  // namespace plimsoll
