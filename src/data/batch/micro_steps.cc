#include "data/batch/micro_steps.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace plimsoll {

MicroSteps::MicroSteps(const MicroCapacity& capacity, const SequenceShape& shape, int64_t sequences,
                       const Rank& rank)
    : capacity_(capacity),
      labels_of_(labels_of(shape.of_row)),
      packer_(capacity, capacity.by_tokens() ? sequences : 0),
      batch_(capacity, shape),
      rank_(rank) {
  if (shape.shares_prefixes && !shape.packs())
    shared_.emplace(capacity, sequences, std::ssize(batch_.input_ids));
  if (shape.longest_alike) longest_.emplace(sequences * shape.documents, sequences * shape.tokens);
  check_internal(rank.ranks > 0 && rank.number >= 0 && rank.number < rank.ranks, "no such rank");
  if (rank.ranks == 1) return;
  check_internal(!shared_, "ranks share no prefixes");
  own_.reserve(static_cast<size_t>(sequences));
  by_size_.reserve(static_cast<size_t>(sequences));
  tokens_.resize(static_cast<size_t>(rank.ranks));
  counts_.resize(static_cast<size_t>(rank.ranks));
}

int64_t MicroSteps::sequences() const {
  return rank_.ranks == 1 ? of_->packed_sequences() : std::ssize(own_);
}

int64_t MicroSteps::sequence(int64_t number) const {
  return rank_.ranks == 1 ? number : own_[static_cast<size_t>(number)];
}

void MicroSteps::level(const EffectiveBatch& batch) {
  const int64_t all = batch.packed_sequences(), most = ceil_div(all, rank_.ranks);
  by_size_.clear();
  for (int64_t sequence = 0; sequence < all; ++sequence) {
    const RowSize size = batch.size_of(sequence, true);
    by_size_.push_back({size.tokens + size.targets, sequence});
  }
  std::ranges::sort(by_size_, [](const Sized& a, const Sized& b) {
    return a.tokens != b.tokens ? a.tokens > b.tokens : a.sequence < b.sequence;
  });
  own_.clear();
  std::ranges::fill(tokens_, 0);
  std::ranges::fill(counts_, 0);
  for (const auto& [tokens, sequence] : by_size_) {
    size_t to = 0;
    for (size_t rank = 0; rank < tokens_.size(); ++rank)
      if (counts_[rank] < most && (counts_[to] == most || tokens_[rank] < tokens_[to])) to = rank;
    tokens_[to] += tokens;
    ++counts_[to];
    if (std::cmp_equal(to, rank_.number)) own_.push_back(sequence);
  }
  std::ranges::sort(own_);
}

void MicroSteps::cut(const EffectiveBatch& batch) {
  of_ = &batch;
  if (longest_) longest_->set(batch);
  cut_by_shared_ = false;
  if (rank_.ranks > 1) level(batch);
  all_ = ceil_div(sequences(), capacity_.samples);
  if (capacity_.by_tokens()) pack(batch);
  if (!shared_ || all_ <= 1) return;
  shared_->set(batch, labels_of_);
  const int64_t apart = shared_->tokens(all_, [&](int64_t row) { return step_of(row); });
  if (!shared_->cut(all_)) return;
  const int64_t together =
      shared_->tokens(shared_->count(), [&](int64_t row) { return shared_->of_row(row); });
  cut_by_shared_ = shared_->count() < all_ || together < apart;
  if (cut_by_shared_) all_ = shared_->count();
}

void MicroSteps::pack(const EffectiveBatch& batch) {
  packer_.clear();
  for (int64_t number = 0; number < sequences(); ++number) {
    const RowSize size = batch.size_of(sequence(number), capacity_.targets > 0);
    const int64_t shared = shared_ ? capacity_.begin + size.shared : 0;
    const RowSize row{std::max<int64_t>(0, size.tokens - shared), size.targets};
    if (shared_ && capacity_.begin + row.tokens > capacity_.tokens)
      throw UsageError(
          "data.share_prefixes: rows share less than when the run was planned: the data changed since. Start "
          "the run again.");
    packer_.add(row);
  }
  all_ = packer_.pack();
}

int64_t MicroSteps::step_of(int64_t number) const {
  if (cut_by_shared_) return shared_->of_row(number);
  return capacity_.by_tokens() ? packer_.of_row(number) : number / capacity_.samples;
}

const MicroBatch& MicroSteps::fill_with(const EffectiveBatch& batch, int64_t sequence) {
  batch_.clear();
  batch.append_to(batch_, sequence);
  return completed();
}

const MicroBatch& MicroSteps::fill(int64_t step) {
  check_internal(of_ != nullptr && step >= 0 && step < count(), "no such micro-step");
  batch_.clear();
  for (int64_t number = 0; number < sequences(); ++number)
    if (step_of(number) == step) of_->append_to(batch_, sequence(number));
  return completed();
}

const MicroBatch& MicroSteps::completed() {
  if (longest_)
    for (size_t i = 0; i < static_cast<size_t>(batch_.live_sequences); ++i)
      std::ranges::copy(longest_->of(batch_.sample_in_batch[i]),
                        batch_.row_lengths.begin() + batch_.seq_starts[i]);
  batch_.build_tree();
  return batch_;
}

}  // namespace plimsoll
