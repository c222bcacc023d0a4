#include "data/micro_steps.h"

#include "base/error.h"
#include "base/units.h"

namespace plimsoll {

MicroSteps::MicroSteps(const MicroRoom& room, const SequenceShape& shape, int64_t sequences, const Rank& rank)
    : room_(room),
      shares_(shape.shares_prefixes),
      packer_(room, room.by_tokens() ? sequences : 0),
      batch_(room, shape),
      rank_(rank) {
  check_internal(rank.ranks > 0 && rank.number >= 0 && rank.number < rank.ranks, "no such rank");
}

void MicroSteps::cut(const EffectiveBatch& batch) {
  of_ = &batch;
  const int64_t sequences = batch.packed_sequences();
  all_ = ceil_div(sequences, room_.samples);
  if (!room_.by_tokens()) return;
  packer_.clear();
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    const RowSize size = batch.size_of(sequence, room_.targets > 0);
    const RowSize row{size.tokens - (shares_ ? size.shared : 0), size.targets};
    if (shares_ && row.tokens > room_.tokens)
      throw UsageError(
          "data.share_prefixes: the two answers of a row share less than when the run was planned: "
          "the data changed since. Start the run again.");
    packer_.add(row);
  }
  all_ = packer_.pack();
}

const MicroBatch& MicroSteps::fill(int64_t step) {
  check_internal(of_ != nullptr && step >= 0 && step < count(), "no such micro-step");
  batch_.clear();
  const int64_t number = step * rank_.ranks + rank_.number;
  for (int64_t sequence = 0; sequence < of_->packed_sequences(); ++sequence)
    if ((room_.by_tokens() ? packer_.of_row(sequence) : sequence / room_.samples) == number)
      of_->append_to(batch_, sequence);
  batch_.build_tree();
  return batch_;
}

}  // namespace plimsoll
