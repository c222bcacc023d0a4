// From a recipe's data to rows that a loader reads.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/units.h"
#include "cpu/threads.h"
#include "data/statistics.h"
#include "train/conversations.h"
#include "train/setup.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::optional<RowFormat> row_format(DataFormat format) {
  switch (format) {
    case DataFormat::automatic:
      return std::nullopt;
    case DataFormat::prompt_response:
      return RowFormat::prompt_response;
    case DataFormat::messages:
      return RowFormat::messages;
    case DataFormat::text:
      return RowFormat::text;
    case DataFormat::input_ids:
      return RowFormat::input_ids;
  }
  throw InternalError("row_format: no such format");
}

ExampleEncoder make_encoder(const Recipe& recipe, RowFormat format, const DataSetup& data, int64_t vocab) {
  ExampleOptions options;
  options.format = format;
  options.max_length = recipe.data.max_length;
  options.truncation = recipe.data.truncation == Truncation::left ? Side::left : Side::right;
  options.train_on_prompt = recipe.data.train_on_prompt || recipe.task == Task::pretrain;
  options.vocab_size = vocab;
  if (format == RowFormat::input_ids) return ExampleEncoder(options, {});
  if (!data.tokenizer)
    throw UsageError(
        recipe.model +
        ": has no tokenizer.json or tokenizer.model, which rows of text need (format input-ids does not)");
  if (!data.special.end_of_text)
    throw UsageError(recipe.model + ": names no end-of-text token (eos_token in tokenizer_config.json)");
  options.eos = *data.special.end_of_text;
  EncodeConversation converse;
  if (auto chat = chat_template_of(recipe, format))
    converse = conversation_encoder(data.tokenizer, *std::move(chat), options.train_on_prompt);
  return ExampleEncoder(
      options,
      [tokenizer = data.tokenizer](std::string_view text, std::vector<int32_t>& ids) {
        tokenizer->encode_into(text, false, ids);
      },
      std::move(converse));
}

Dataset open_rows(const Recipe& recipe, const std::vector<TrainSource>& sources, RowFormat& format) {
  std::vector<WeightedPath> paths;
  for (const auto& [path, weight] : sources) paths.push_back({path, weight});
  Dataset dataset =
      Dataset::open(paths, recipe.data.on_error == RowErrors::skip ? OnError::skip : OnError::stop);
  const ColumnBinding binding =
      bind_columns(dataset.columns(), row_format(recipe.data.format), recipe.data.columns, dataset.name());
  dataset.select(binding.columns, binding.read_as());
  format = binding.format;
  return dataset;
}

LoaderOptions train_loader(const Recipe& recipe) {
  LoaderOptions options;
  options.effective = recipe.batch.effective;
  options.packing = recipe.data.packing;
  options.prefetch = recipe.data.prefetch == kAuto ? 2 : recipe.data.prefetch;
  options.order.shuffle = recipe.data.shuffle;
  options.order.seed = static_cast<uint64_t>(recipe.seed);
  options.on_thread_start = unpin_this_thread;
  return options;
}

// Evaluation walks all its rows once, in order, a micro-batch at a time.
LoaderOptions eval_loader(int64_t micro) {
  LoaderOptions options;
  options.effective = micro;
  options.prefetch = 1;
  options.epochs = 1;
  options.order.shuffle = false;
  options.on_thread_start = unpin_this_thread;
  return options;
}

void open_eval(const Recipe& recipe, int64_t vocab, DataSetup& data) {
  const int64_t micro = recipe.eval.micro == kAuto ? recipe.batch.effective : recipe.eval.micro;
  if (recipe.data.eval.kind == EvalSource::Kind::none) return;
  RowFormat format{};
  if (recipe.data.eval.kind == EvalSource::Kind::path) {
    Dataset dataset = open_rows(recipe, {{recipe.data.eval.path}}, format);
    const int64_t rows = dataset.rows();
    data.eval.emplace(DataSource{std::move(dataset), RowSubset::all(rows),
                                 make_encoder(recipe, format, data, vocab), eval_loader(micro)});
    return;
  }
  Dataset dataset = open_rows(recipe, recipe.data.train, format);
  HoldOut parts =
      hold_out(dataset.rows(), recipe.data.eval.percent / 100.0, static_cast<uint64_t>(recipe.seed));
  data.train->rows = std::move(parts.train);
  data.eval.emplace(DataSource{std::move(dataset), std::move(parts.held_out),
                               make_encoder(recipe, format, data, vocab), eval_loader(micro)});
}

DataSummary summarise(DataSource& train) {
  const DataStatistics sample = sample_data(train.dataset, train.rows, train.encoder);
  if (sample.rows == train.rows.size() && sample.target_tokens == 0)
    refuse_without_targets(train.dataset.name(), train.encoder.options().max_length, sample.first_damage);
  const RowOrder order(train.dataset.units(), train.rows, train.loader.order);
  DataSummary summary;
  summary.rows = order.rows();
  summary.sampled_rows = sample.rows == train.rows.size() ? 0 : sample.rows;
  const double all =
      static_cast<double>(order.rows()) / static_cast<double>(std::max<int64_t>(1, sample.rows));
  summary.tokens = std::llround(static_cast<double>(sample.tokens) * all);
  summary.longest = sample.longest;
  summary.truncated_share = sample.share_truncated();
  summary.skipped_share = sample.share_of_rows(sample.skipped);
  summary.damaged_share = sample.share_of_rows(sample.damaged);
  for (const PlacedUnit& unit : train.dataset.units())
    summary.bytes_per_epoch += std::llround(static_cast<double>(unit.bytes) * unit.weight);
  return summary;
}

}  // namespace

DataSetup open_data(const Recipe& recipe, int64_t vocab) {
  DataSetup data;
  if (const auto tokenizer = Tokenizer::find_file(recipe.model)) {
    data.tokenizer = std::make_shared<const Tokenizer>(Tokenizer::from_file(*tokenizer));
    data.special = read_special_tokens(recipe.model, *data.tokenizer);
  }
  RowFormat format{};
  Dataset dataset = open_rows(recipe, recipe.data.train, format);
  const int64_t rows = dataset.rows();
  data.train.emplace(DataSource{std::move(dataset), RowSubset::all(rows),
                                make_encoder(recipe, format, data, vocab), train_loader(recipe)});
  data.chat = chat_template_of(recipe, format);
  open_eval(recipe, vocab, data);
  data.summary = summarise(*data.train);
  return data;
}

int64_t total_steps(const Recipe& recipe, DataSource& train) {
  if (recipe.schedule.max_steps) return *recipe.schedule.max_steps;
  const int64_t epochs = recipe.schedule.epochs;
  if (train.loader.packing)
    return count_packed_steps(train.dataset, train.rows, train.encoder, train.loader, epochs);
  const RowOrder order(train.dataset.units(), train.rows, train.loader.order);
  return epochs * ceil_div(order.rows(), train.loader.effective);
}

}  // namespace plimsoll
