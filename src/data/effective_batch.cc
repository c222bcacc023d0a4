#include "data/effective_batch.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"

namespace plimsoll {

EffectiveBatch::EffectiveBatch(int64_t sequences, int64_t max_length) {
  ids_.reserve(static_cast<size_t>(sequences * max_length));
  labels_.reserve(static_cast<size_t>(sequences * max_length));
  starts_.reserve(static_cast<size_t>(sequences + 1));
  rows_.reserve(static_cast<size_t>(sequences));
  clear();
}

void EffectiveBatch::clear() {
  ids_.clear();
  labels_.clear();
  starts_.assign(1, 0);
  rows_.clear();
  target_tokens_ = truncated_rows_ = skipped_rows_ = 0;
  ends_epoch = false;
}

void EffectiveBatch::add(const Example& example, int64_t row) {
  if (example.truncated()) ++truncated_rows_;
  if (example.targets == 0) {
    ++skipped_rows_;
    return;
  }
  check_internal(ids_.size() + example.ids.size() <= ids_.capacity() && starts_.size() < starts_.capacity(),
                 "an example does not fit into its effective batch");
  ids_.insert(ids_.end(), example.ids.begin(), example.ids.end());
  labels_.insert(labels_.end(), example.labels.begin(), example.labels.end());
  starts_.push_back(static_cast<int64_t>(ids_.size()));
  rows_.push_back(row);
  target_tokens_ += example.targets;
}

std::span<const int32_t> EffectiveBatch::ids(int64_t sequence) const {
  const auto start = static_cast<size_t>(starts_[static_cast<size_t>(sequence)]);
  return std::span(ids_).subspan(start,
                                 static_cast<size_t>(starts_[static_cast<size_t>(sequence) + 1]) - start);
}

std::span<const int32_t> EffectiveBatch::labels(int64_t sequence) const {
  const auto start = static_cast<size_t>(starts_[static_cast<size_t>(sequence)]);
  return std::span(labels_).subspan(start,
                                    static_cast<size_t>(starts_[static_cast<size_t>(sequence) + 1]) - start);
}

int64_t EffectiveBatch::micro_steps(int64_t micro) const { return ceil_div(sequences(), micro); }

void EffectiveBatch::fill(int64_t step, MicroBatch& out) const {
  const auto micro = static_cast<int64_t>(out.sample_in_batch.size());
  check_internal(step >= 0 && step < micro_steps(micro), "no such micro-step");
  out.clear();
  for (int64_t sequence = step * micro; sequence < std::min(sequences(), (step + 1) * micro); ++sequence)
    out.append(ids(sequence), labels(sequence), static_cast<int32_t>(sequence));
}

int64_t EffectiveBatch::planned_bytes(int64_t sequences, int64_t max_length) {
  return 2 * sequences * max_length * static_cast<int64_t>(sizeof(int32_t)) +
         (2 * sequences + 1) * static_cast<int64_t>(sizeof(int64_t));
}

}  // namespace plimsoll
