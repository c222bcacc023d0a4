#include "train/batch_writer.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/encode/example.h"

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
      row_lengths_(input_or_none<int32_t>(program, prefix + "row_lengths")),
      parents_(input_or_none<int32_t>(program, prefix + "parents")),
      label_rows_(input_or_none<int32_t>(program, prefix + "label_rows")),
      label_sequences_(input_or_none<int32_t>(program, prefix + "label_sequences")),
      label_weights_(input_or_none<float>(program, prefix + "label_weights")),
      padding_(static_cast<int32_t>(padding.value_or(-1))) {}

void AxisInputs::count_positions(std::span<const int32_t> ids, std::span<int32_t> to) const {
  int32_t counted = 0;
  for (size_t i = 0; i < ids.size(); ++i) to[i] = padding_ + (ids[i] == padding_ ? 0 : ++counted);
}

void AxisInputs::clear() {
  for (const std::span<int32_t> zeros : {input_ids_, positions_, samples_, token_types_, position_ids_,
                                         row_lengths_, seq_starts_, parents_, label_rows_, label_sequences_})
    std::fill(zeros.begin(), zeros.end(), 0);
  std::fill(labels_.begin(), labels_.end(), kIgnoreLabel);
  std::fill(label_weights_.begin(), label_weights_.end(), 0.0F);
}

// The tokens that rows share were counted before the run.
AxisInputs::Live AxisInputs::write(const MicroBatch& batch, const PrefixTree& tree) {
  if (tree.tokens() > std::ssize(input_ids_))
    throw UsageError(
        "data.share_prefixes: rows of a micro-step share less than when the run was planned, so the data changed. Start the run again with --overwrite.");
  check_internal(row_lengths_.empty() || !batch.row_lengths.empty(),
                 "noise over shared prefixes, and a batch without lengths");
  clear();
  for (size_t i = 0; i < tree.order().size(); ++i) {
    const PrefixTree::Segment& segment = tree.order()[i];
    const auto sequence = static_cast<size_t>(segment.sequence);
    const auto at = static_cast<std::ptrdiff_t>(segment.start);
    const auto from = batch.seq_starts[sequence] + segment.begin;
    std::copy_n(batch.input_ids.begin() + from, segment.tokens(), input_ids_.begin() + at);
    std::copy_n(batch.positions.begin() + from, segment.tokens(), positions_.begin() + at);
    const std::span ids = std::span(batch.input_ids).subspan(static_cast<size_t>(batch.seq_starts[sequence]));
    write_prefix_hashes(ids, samples_.subspan(static_cast<size_t>(at), static_cast<size_t>(segment.tokens())),
                        static_cast<size_t>(segment.begin));
    if (!row_lengths_.empty())
      std::copy_n(batch.row_lengths.begin() + from, segment.tokens(), row_lengths_.begin() + at);
    parents_[i] = segment.parent;
    seq_starts_[i] = segment.start;
  }
  const auto segments = std::ssize(tree.order());
  std::fill(seq_starts_.begin() + segments, seq_starts_.end(), static_cast<int32_t>(tree.tokens()));
  if (!labels_.empty()) write_labels(batch, tree);
  return {tree.tokens(), segments};
}

// A token's label stands where the token is, with the row before it, which is its parent's last where the
// token is the first of a segment.
void AxisInputs::write_labels(const MicroBatch& batch, const PrefixTree& tree) {
  for (int64_t sequence = 0; sequence < batch.live_sequences; ++sequence)
    for (int32_t i = tree.last_of(sequence); i >= 0; i = tree.order()[static_cast<size_t>(i)].parent) {
      const PrefixTree::Segment& segment = tree.order()[static_cast<size_t>(i)];
      const auto from = static_cast<size_t>(batch.seq_starts[static_cast<size_t>(sequence)] + segment.begin);
      for (int32_t k = segment.begin == 0 ? 1 : 0; k < segment.tokens(); ++k) {
        const int32_t label = batch.labels[from + static_cast<size_t>(k) - 1];
        if (label == kIgnoreLabel) continue;
        const auto row = static_cast<size_t>(segment.start + k);
        labels_[row] = label;
        label_rows_[row] =
            k > 0 ? segment.start + k - 1 : tree.order()[static_cast<size_t>(segment.parent)].last_row();
        if (!label_weights_.empty()) label_weights_[row] += 1;
        if (!label_sequences_.empty()) label_sequences_[row] = static_cast<int32_t>(sequence);
      }
    }
}

AxisInputs::Live AxisInputs::write(const MicroBatch& batch, const Documents& which) {
  clear();
  Live live;
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
    if (!row_lengths_.empty()) std::fill_n(row_lengths_.begin() + at, count, count);
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
      step_(program.input<double>(kStepTensor)) {
  for (size_t which = 0; which <= model.other_ropes.size(); ++which)
    inv_freq_.push_back(input_or_none<float>(program, rope_input(which)));
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
    if (first_.shares()) {
      const PrefixTree::Segment& last =
          batch.tree->order()[static_cast<size_t>(batch.tree->last_of(static_cast<int64_t>(s)))];
      scored_rows_[s] = last.last_row();
      scored_samples_[s] = batch.sample_in_batch[s];
      scored_positions_[s] = last.end - 1;
      continue;
    }
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
    // The last token of a target is not read by the decoder.
    set_live(kFirstAxis + 1, decoder_->write(batch, {.first = 1, .every = 2, .without_last = 1}));
    return;
  }
  check_internal(!first_.shares() || batch.tree,
                 "a program that shares prefixes, and a batch without a tree");
  set_live(kFirstAxis, first_.shares() ? first_.write(batch, *batch.tree) : first_.write(batch, {}));
  if (decoder_) {
    const auto start = static_cast<int32_t>(model_.encoder_decoder->start_token);
    AxisInputs::Documents texts{.start = start};
    if (begins_to_write()) texts.at_most = 1;
    set_live(kFirstAxis + 1, decoder_->write(batch, texts));
  }
  if (!targets_.empty()) std::copy(batch.targets.begin(), batch.targets.end(), targets_.begin());
  if (scores) write_scored_rows(batch);
  set_live(sequence_axis(model_), {batch.live_sequences, batch.live_sequences});
  for (size_t which = 0; which < inv_freq_.size(); ++which)
    if (!inv_freq_[which].empty())
      write_frequencies(batch, which == 0 ? model_.rope : model_.other_ropes[which - 1], inv_freq_[which]);
}

// Frequencies of segments do not depend on lengths (why_no_shared_prefixes).
void BatchWriter::write_frequencies(const MicroBatch& batch, const RopeSpec& rope, std::span<float> out) {
  const auto width = static_cast<size_t>(model_.rotary() / 2 + 1);
  if (first_.shares()) {
    rope_frequencies(rope, model_.rotary(), 1, out.first(width));
    for (size_t at = width; at < out.size(); ++at) out[at] = out[at - width];
    return;
  }
  for (size_t s = 0; s + 1 < batch.seq_starts.size(); ++s)
    rope_frequencies(rope, model_.rotary(), batch.seq_starts[s + 1] - batch.seq_starts[s],
                     out.subspan(s * width, width));
}

}  // namespace plimsoll
