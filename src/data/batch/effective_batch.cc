#include "data/batch/effective_batch.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "data/batch/prefix_tree.h"

namespace plimsoll {

EffectiveBatch::EffectiveBatch(int64_t sequences, const SequenceShape& shape)
    : targets_each_(static_cast<size_t>(shape.targets)), packer_(sequences, shape) {
  const auto tokens = static_cast<size_t>(sequences * shape.tokens);
  const auto documents = static_cast<size_t>(sequences * shape.documents);
  targets_.reserve(documents * targets_each_);
  ids_.reserve(tokens);
  labels_.reserve(tokens);
  starts_.reserve(documents + 1);
  rows_.reserve(documents);
  placed_.reserve(documents);
  seconds_.reserve(documents);
  clear();
}

void EffectiveBatch::clear() {
  ids_.clear();
  labels_.clear();
  targets_.clear();
  starts_.assign(1, 0);
  rows_.clear();
  placed_.clear();
  seconds_.clear();
  packer_.clear();
  target_tokens_ = truncated_rows_ = skipped_rows_ = damaged_rows_ = 0;
  first_damage_.clear();
  ends_epoch = false;
}

bool EffectiveBatch::add(const Example& example, int64_t row) {
  if (!example.damage.empty()) {
    if (damaged_rows_++ == 0) first_damage_ = example.damage;
    return true;
  }
  const auto tokens = static_cast<int64_t>(example.ids.size());
  const int64_t place = !example.learns() ? 0 : packer_.place(tokens, example.sequences());
  if (place < 0) return false;
  if (example.truncated()) ++truncated_rows_;
  if (!example.learns()) {
    ++skipped_rows_;
    return true;
  }
  const auto documents = static_cast<size_t>(example.sequences());
  check_internal(ids_.size() + example.ids.size() <= ids_.capacity() &&
                     starts_.size() + documents <= starts_.capacity() &&
                     example.values.size() == documents * targets_each_,
                 "an example does not fit into its effective batch");
  const auto first = static_cast<int64_t>(ids_.size());
  ids_.insert(ids_.end(), example.ids.begin(), example.ids.end());
  labels_.insert(labels_.end(), example.labels.begin(), example.labels.end());
  targets_.insert(targets_.end(), example.values.begin(), example.values.end());
  for (int64_t i = 0; i < example.sequences(); ++i) {
    starts_.push_back(first + example.end_of(i));
    rows_.push_back(row);
    placed_.push_back(place);
    seconds_.push_back(static_cast<int32_t>(example.second));
  }
  target_tokens_ += example.targets;
  return true;
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

RowSize EffectiveBatch::size_of(int64_t packed_sequence, bool apart) const {
  RowSize size;
  int64_t documents = 0, before = -1;
  for (int64_t document = 0; document < sequences(); ++document) {
    if (placed_[static_cast<size_t>(document)] != packed_sequence) continue;
    const auto tokens = std::ssize(ids(document));
    if (before >= 0 && !apart)
      size.shared += common_tokens(ids(before), labels(before), ids(document), labels(document));
    before = document;
    // A target begins with a token that is no part of it.
    if (apart && documents++ % 2 == 1)
      size.targets += tokens - 1;
    else
      size.tokens += tokens;
  }
  return size;
}

std::span<const int32_t> EffectiveBatch::begin_of(int64_t packed_sequence, SharedLabels labels_of) const {
  std::span<const int32_t> begin;
  bool first = true;
  for (int64_t document = 0; document < sequences(); ++document) {
    if (placed_[static_cast<size_t>(document)] != packed_sequence) continue;
    if (first) begin = ids(document);
    first = false;
    begin = begin.first(std::min(begin.size(), shareable_begin(ids(document), labels(document), labels_of)));
    if (labels_of == SharedLabels::weighed) break;
  }
  return begin;
}

std::span<const float> EffectiveBatch::targets(int64_t sequence) const {
  return std::span(targets_).subspan(static_cast<size_t>(sequence) * targets_each_, targets_each_);
}

void EffectiveBatch::append_to(MicroBatch& out, int64_t packed_sequence) const {
  for (int64_t document = 0; document < sequences(); ++document)
    if (placed_[static_cast<size_t>(document)] == packed_sequence)
      out.append(ids(document), labels(document), static_cast<int32_t>(document), targets(document),
                 seconds_[static_cast<size_t>(document)]);
}

int64_t EffectiveBatch::planned_bytes(int64_t sequences, const SequenceShape& shape) {
  return 2 * sequences * shape.tokens * static_cast<int64_t>(sizeof(int32_t)) +
         sequences * shape.documents * shape.targets * static_cast<int64_t>(sizeof(float)) +
         sequences * shape.documents * static_cast<int64_t>(sizeof(int32_t)) +
         (3 * sequences * shape.documents + 2 * sequences + 1) * static_cast<int64_t>(sizeof(int64_t));
}

}  // namespace plimsoll
