#include "train/batch_writer.h"

#include <algorithm>
#include <numeric>

#include "data/example.h"

namespace plimsoll {
namespace {

template <class T>
std::span<T> input_or_none(const Executor& program, const std::string& name) {
  return program.has(name) ? program.input<T>(name) : std::span<T>{};
}

}  // namespace

AxisInputs::AxisInputs(const Executor& program, const std::string& prefix, std::optional<int64_t> padding)
    : input_ids_(program.input<int32_t>(prefix + "input_ids")),
      labels_(input_or_none<int32_t>(program, prefix + "labels")),
      positions_(program.input<int32_t>(prefix + "positions")),
      samples_(program.input<int32_t>(prefix + "samples")),
      seq_starts_(program.input<int32_t>(prefix + "seq_starts")),
      token_types_(input_or_none<int32_t>(program, prefix + "token_type_ids")),
      position_ids_(input_or_none<int32_t>(program, prefix + "position_ids")),
      padding_(static_cast<int32_t>(padding.value_or(-1))) {}

void AxisInputs::count_positions(std::span<const int32_t> ids, std::span<int32_t> to) const {
  int32_t counted = 0;
  for (size_t i = 0; i < ids.size(); ++i) to[i] = padding_ + (ids[i] == padding_ ? 0 : ++counted);
}

AxisInputs::Live AxisInputs::write(const MicroBatch& batch, const Documents& which) {
  for (const std::span<int32_t> zeros : {input_ids_, positions_, samples_, token_types_, position_ids_})
    std::fill(zeros.begin(), zeros.end(), 0);
  std::fill(labels_.begin(), labels_.end(), kIgnoreLabel);
  Live live;
  std::fill(seq_starts_.begin(), seq_starts_.end(), 0);
  for (size_t s = which.first; s < static_cast<size_t>(batch.live_sequences); s += which.every) {
    const auto from = batch.seq_starts[s];
    const auto count = std::min(batch.seq_starts[s + 1] - from - which.without_last, which.at_most);
    const auto at = static_cast<std::ptrdiff_t>(live.tokens);
    if (which.start) {
      input_ids_[live.tokens] = *which.start;
      std::copy_n(batch.input_ids.begin() + from, count - 1, input_ids_.begin() + at + 1);
    } else {
      std::copy_n(batch.input_ids.begin() + from, count, input_ids_.begin() + at);
    }
    if (!labels_.empty()) std::copy_n(batch.labels.begin() + from, count, labels_.begin() + at);
    std::copy_n(batch.positions.begin() + from, count, positions_.begin() + at);
    std::fill_n(samples_.begin() + at, count, batch.sample_in_batch[s]);
    if (!token_types_.empty() && batch.seconds[s] >= 0)
      std::fill(token_types_.begin() + at + batch.seconds[s], token_types_.begin() + at + count, 1);
    const auto row = static_cast<size_t>(at), rows = static_cast<size_t>(count);
    if (!position_ids_.empty())
      count_positions(input_ids_.subspan(row, rows), position_ids_.subspan(row, rows));
    live.tokens += count;
    ++live.sequences;
    std::fill(seq_starts_.begin() + live.sequences, seq_starts_.end(), static_cast<int32_t>(live.tokens));
  }
  return live;
}

BatchWriter::BatchWriter(const Executor& program, const ModelSpec& model)
    : model_(model),
      first_(program, "", model.pad_token),
      scored_rows_(input_or_none<int32_t>(program, "sequences.scored_rows")),
      scored_samples_(input_or_none<int32_t>(program, "sequences.samples")),
      scored_positions_(input_or_none<int32_t>(program, "sequences.positions")),
      scored_starts_(input_or_none<int32_t>(program, "sequences.seq_starts")),
      targets_(input_or_none<float>(program, "sequences.targets")),
      inv_freq_(input_or_none<float>(program, "inv_freq")),
      step_(program.input<double>(kStepTensor)) {
  if (model.encoder_decoder) decoder_.emplace(program, "decoder.", model.pad_token);
}

void BatchWriter::set_seed(uint64_t seed) {
  set(StepValue::seed_low, static_cast<double>(seed & 0xFFFFFFFFU));
  set(StepValue::seed_high, static_cast<double>(seed >> 32));
}

// A sequence is scored at its last token, an encoder's at its first; by words, at the decoder's only one.
void BatchWriter::write_scored_rows(const MicroBatch& batch) {
  for (const std::span<int32_t> zeros : {scored_rows_, scored_samples_, scored_positions_})
    std::fill(zeros.begin(), zeros.end(), 0);
  for (size_t s = 0; s < static_cast<size_t>(batch.live_sequences); ++s) {
    const int32_t start = batch.seq_starts[s];
    const int32_t position = model_.encoder || begins_to_write() ? 0 : batch.seq_starts[s + 1] - 1 - start;
    scored_rows_[s] = begins_to_write() ? static_cast<int32_t>(s) : start + position;
    scored_samples_[s] = batch.sample_in_batch[s];
    scored_positions_[s] = position;
  }
  const auto live = static_cast<int32_t>(batch.live_sequences);
  for (int32_t s = 0; s < static_cast<int32_t>(scored_starts_.size()); ++s)
    scored_starts_[static_cast<size_t>(s)] = std::min(s, live);
}

void BatchWriter::set_live(AxisId axis, const AxisInputs::Live& live) {
  set(live_tokens_of(axis), static_cast<double>(live.tokens));
  set(live_sequences_of(axis), static_cast<double>(live.sequences));
}

void BatchWriter::write(const MicroBatch& batch) {
  const bool scores = !scored_rows_.empty();
  if (decoder_ && !scores) {
    set_live(kFirstAxis, first_.write(batch, {.first = 0, .every = 2}));
    // The last token of a target is nobody's input.
    set_live(kFirstAxis + 1, decoder_->write(batch, {.first = 1, .every = 2, .without_last = 1}));
    return;
  }
  set_live(kFirstAxis, first_.write(batch, {}));
  if (decoder_) {
    const auto start = static_cast<int32_t>(model_.encoder_decoder->start_token);
    AxisInputs::Documents texts{.start = start};
    if (begins_to_write()) texts.at_most = 1;
    set_live(kFirstAxis + 1, decoder_->write(batch, texts));
  }
  if (!targets_.empty()) std::copy(batch.targets.begin(), batch.targets.end(), targets_.begin());
  if (scores) write_scored_rows(batch);
  set_live(sequence_axis(model_), {batch.live_sequences, batch.live_sequences});
  const auto width = static_cast<size_t>(model_.head_dim / 2 + 1);
  for (size_t s = 0; !inv_freq_.empty() && s + 1 < batch.seq_starts.size(); ++s)
    rope_frequencies(model_, batch.seq_starts[s + 1] - batch.seq_starts[s],
                     inv_freq_.subspan(s * width, width));
}

}  // namespace plimsoll
