#include "data/batch/micro_batch.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/encode/example.h"

namespace plimsoll {

namespace {

// A target begins with a token that is no part of it. Documents that share what they begin with lie here
// whole: each sample with the tokens that all begin with, and those of a sample have as many tokens as they
// are documents times what they share room for, at most; twice as many let rows that share more be together.
int64_t tokens_of(const MicroCapacity& capacity, const SequenceShape& shape) {
  if (shape.shares_prefixes && capacity.by_tokens()) {
    const int64_t each_whole = capacity.tokens + (capacity.samples - 1) * capacity.begin;
    return std::min(capacity.samples * shape.tokens, each_whole * std::max<int64_t>(2, shape.of_row));
  }
  if (!capacity.by_tokens()) return capacity.samples * shape.tokens;
  return capacity.tokens + (capacity.targets > 0 ? capacity.targets + capacity.samples : 0);
}

}  // namespace

MicroBatch::MicroBatch(const MicroCapacity& capacity, const SequenceShape& shape)
    : input_ids(static_cast<size_t>(tokens_of(capacity, shape))),
      labels(input_ids.size()),
      positions(input_ids.size()),
      seq_starts(static_cast<size_t>(capacity.samples * shape.documents + 1)),
      sample_in_batch(static_cast<size_t>(capacity.samples * shape.documents)),
      seconds(sample_in_batch.size()),
      row_lengths(shape.longest_alike ? input_ids.size() : 0),
      targets(sample_in_batch.size() * static_cast<size_t>(shape.targets)),
      labels_of_(labels_of(shape.of_row)),
      shift_(shape.labels_in_place ? 0 : 1) {
  if (shape.shares_prefixes)
    tree.emplace(static_cast<int64_t>(sample_in_batch.size()), static_cast<int64_t>(input_ids.size()));
  clear();
}

void MicroBatch::build_tree() {
  if (tree) tree->build(*this, labels_of_);
}

void MicroBatch::clear() {
  std::fill(input_ids.begin(), input_ids.end(), 0);
  std::fill(labels.begin(), labels.end(), kIgnoreLabel);
  std::fill(positions.begin(), positions.end(), 0);
  std::fill(seq_starts.begin(), seq_starts.end(), 0);
  std::fill(sample_in_batch.begin(), sample_in_batch.end(), 0);
  std::fill(seconds.begin(), seconds.end(), -1);
  std::fill(row_lengths.begin(), row_lengths.end(), 0);
  std::fill(targets.begin(), targets.end(), 0.0F);
  live_tokens = live_sequences = target_tokens = 0;
}

void MicroBatch::append(std::span<const int32_t> ids, std::span<const int32_t> aligned_labels, int32_t sample,
                        std::span<const float> its_targets, int32_t second) {
  const auto start = static_cast<size_t>(live_tokens);
  const auto sequence = static_cast<size_t>(live_sequences);
  check_internal(ids.size() == aligned_labels.size() && !ids.empty(),
                 "a sequence needs ids and as many labels");
  check_internal(start + ids.size() <= input_ids.size() && sequence < sample_in_batch.size(),
                 "a sequence does not fit into its micro-batch");
  const auto offset = static_cast<std::ptrdiff_t>(start);
  std::copy(ids.begin(), ids.end(), input_ids.begin() + offset);
  // Shifted, the last position has no next token: its label stays ignored.
  const auto read = aligned_labels.subspan(static_cast<size_t>(shift_));
  std::copy(read.begin(), read.end(), labels.begin() + offset);
  std::iota(positions.begin() + offset, positions.begin() + offset + static_cast<std::ptrdiff_t>(ids.size()),
            0);
  target_tokens +=
      std::count_if(read.begin(), read.end(), [](int32_t label) { return label != kIgnoreLabel; });
  sample_in_batch[sequence] = sample;
  seconds[sequence] = second;
  check_internal(its_targets.size() * sample_in_batch.size() == targets.size(),
                 "a sequence has other targets than its micro-batch");
  std::copy(its_targets.begin(), its_targets.end(),
            targets.begin() + static_cast<std::ptrdiff_t>(sequence * its_targets.size()));
  live_tokens += static_cast<int64_t>(ids.size());
  ++live_sequences;
  std::fill(seq_starts.begin() + live_sequences, seq_starts.end(), static_cast<int32_t>(live_tokens));
}

int64_t MicroBatch::bytes() const {
  const size_t elements = input_ids.size() + labels.size() + positions.size() + row_lengths.size() +
                          seq_starts.size() + 2 * sample_in_batch.size();
  return static_cast<int64_t>(elements * sizeof(int32_t) + targets.size() * sizeof(float));
}

}  // namespace plimsoll
