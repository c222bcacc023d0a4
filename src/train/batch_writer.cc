#include "train/batch_writer.h"

#include <algorithm>

namespace plimsoll {

BatchWriter::BatchWriter(const Executor& program, const ModelSpec& model)
    : model_(model),
      input_ids_(program.tensor<int32_t>("input_ids")),
      labels_(program.has("labels") ? program.tensor<int32_t>("labels") : std::span<int32_t>{}),
      positions_(program.tensor<int32_t>("positions")),
      samples_(program.tensor<int32_t>("samples")),
      seq_starts_(program.tensor<int32_t>("seq_starts")),
      last_rows_(program.has("sequences.last_rows") ? program.tensor<int32_t>("sequences.last_rows")
                                                    : std::span<int32_t>{}),
      targets_(program.has("sequences.targets") ? program.tensor<float>("sequences.targets")
                                                : std::span<float>{}),
      inv_freq_(program.has("inv_freq") ? program.tensor<float>("inv_freq") : std::span<float>{}),
      step_(program.tensor<double>(kStepTensor)) {}

void BatchWriter::set_seed(uint64_t seed) {
  set(StepValue::seed_low, static_cast<double>(seed & 0xFFFFFFFFU));
  set(StepValue::seed_high, static_cast<double>(seed >> 32));
}

// The last token of a sequence that is no padding, as transformers finds it; of padding alone the first.
void BatchWriter::write_scored_rows(const MicroBatch& batch) {
  std::fill(last_rows_.begin(), last_rows_.end(), 0);
  for (size_t s = 0; s < static_cast<size_t>(batch.live_sequences); ++s) {
    const int32_t start = batch.seq_starts[s];
    int32_t row = batch.seq_starts[s + 1] - 1;
    while (row > start && batch.input_ids[static_cast<size_t>(row)] == model_.pad_token) --row;
    last_rows_[s] = row;
  }
  set(live_tokens_of(kSequenceAxis), static_cast<double>(batch.live_sequences));
}

void BatchWriter::write(const MicroBatch& batch) {
  std::copy(batch.input_ids.begin(), batch.input_ids.end(), input_ids_.begin());
  if (!labels_.empty()) std::copy(batch.labels.begin(), batch.labels.end(), labels_.begin());
  if (!targets_.empty()) std::copy(batch.targets.begin(), batch.targets.end(), targets_.begin());
  if (!last_rows_.empty()) write_scored_rows(batch);
  std::copy(batch.positions.begin(), batch.positions.end(), positions_.begin());
  std::copy(batch.seq_starts.begin(), batch.seq_starts.end(), seq_starts_.begin());
  std::fill(samples_.begin(), samples_.end(), 0);
  const auto width = static_cast<size_t>(model_.head_dim / 2 + 1);
  for (size_t s = 0; s + 1 < batch.seq_starts.size(); ++s) {
    const int32_t start = batch.seq_starts[s];
    const int32_t end = batch.seq_starts[s + 1];
    std::fill(samples_.begin() + start, samples_.begin() + end, batch.sample_in_batch[s]);
    if (!inv_freq_.empty()) rope_frequencies(model_, end - start, inv_freq_.subspan(s * width, width));
  }
  set(StepValue::live_tokens, static_cast<double>(batch.live_tokens));
  set(StepValue::live_sequences, static_cast<double>(batch.live_sequences));
}

}  // namespace plimsoll
