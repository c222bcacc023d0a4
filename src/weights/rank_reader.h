// Loads what several ranks all need: each reads its share of a tensor, and they send it to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/model_folder.h"
#include "ranks/ordered_sum.h"
#include "ranks/run_ranks.h"
#include "weights/persistent_state.h"

namespace plimsoll {

// A tensor that has no address, as ranks exchange it.
class StoredRow final : public ByteStore {
 public:
  // Both outlive it.
  StoredRow(const PersistentState& state, const TableRow& row) : state_(state), row_(row) {}
  [[nodiscard]] size_t size() const override { return static_cast<size_t>(row_.bytes); }
  void read(size_t at, std::span<std::byte> to) const override;
  void write(size_t at, std::span<const std::byte> from) const override;

 private:
  const PersistentState& state_;
  const TableRow& row_;
};

class RankReader {
 public:
  // Both outlive it; `sum` has the staging.
  RankReader(RunRanks& ranks, OrderedSum& sum) : ranks_(ranks), sum_(sum) {}

  // A tensor of a file, of which every rank has all; as load_row() (weights/row_io.h). All ranks throw where one fails.
  void load(const PersistentState& state, const TableRow& row, const StoredTensor& stored,
            std::span<std::byte> staging);
  // Bytes of files that this rank has read so, and that it has sent.
  [[nodiscard]] int64_t read_bytes() const { return read_bytes_; }
  [[nodiscard]] int64_t sent_bytes() const { return sent_bytes_; }

 private:
  RunRanks& ranks_;
  OrderedSum& sum_;
  int64_t read_bytes_ = 0, sent_bytes_ = 0;
};

}  // namespace plimsoll
