// Loads what several ranks all need: each reads its share of a tensor, and they send it to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "formats/model_folder.h"
#include "ranks/ordered_sum.h"
#include "ranks/run_ranks.h"
#include "runtime/device_bytes.h"
#include "weights/persistent_state.h"

namespace plimsoll {

// A tensor that has no address, as ranks exchange it: through DeviceStaging of a device that the host does not reach.
class StoredRow final : public ByteStore {
 public:
  // Both outlive it.
  StoredRow(const PersistentState& state, const TableRow& row);
  [[nodiscard]] size_t size() const override { return static_cast<size_t>(row_.bytes); }
  void read(size_t at, std::span<std::byte> to) const override;
  void write(size_t at, std::span<const std::byte> from) const override;
  [[nodiscard]] bool is_of_card() const override { return apart_.has_value(); }
  // The tensor's own memory where it has an address, else this.
  [[nodiscard]] RankBytes shared() const;

 private:
  const PersistentState& state_;
  const TableRow& row_;
  std::optional<DeviceBytes> apart_;
};

// The elements of a tensor that each rank reads, in whole units of kPieceUnit; the last ones perhaps fewer, or none.
struct RankShare {
  int64_t each = 0;
  ElementRange own;  // this rank's
};

class RankReader {
 public:
  // Both outlive it; `sum` has the staging.
  RankReader(RunRanks& ranks, OrderedSum& sum) : ranks_(ranks), sum_(sum) {}

  // Loads a file's tensor as load_row() (weights/row_io.h) does. If every rank has all of it, each reads a share and
  // sends it to the others, unless they have it in common; if ranks divide it, each reads its own piece. All throw where
  // one fails.
  void load(const PersistentState& state, const TableRow& row, const StoredTensor& stored,
            std::span<std::byte> staging);
  // The file's bytes as they are; as load_part_bytes().
  void load_bytes(const PersistentState& state, const TableRow& row, const StoredTensor& stored,
                  std::span<std::byte> staging);
  // A rank reads this range of a tensor that all have whole.
  [[nodiscard]] RankShare share_of(int64_t elements) const;
  // All ranks have one copy of it: what one writes, all have.
  [[nodiscard]] bool is_everywhere(const PersistentState& state, const TableRow& row) const {
    return state.is_shared(row) && ranks_.are_on_one_node();
  }
  // Every rank does the work of its share, which takes `bytes` of files, and then all have all of `made`: each rank
  // has filled its own piece of each part. All ranks throw where the work of one fails.
  void share(int64_t bytes, const std::function<void()>& work, std::span<const RankPieces> made);
  // Bytes of files that this rank has read so.
  [[nodiscard]] int64_t read_bytes() const { return read_bytes_; }

 private:
  // `load` fills elements of the row, each of so many bytes in the file.
  void load_by(const PersistentState& state, const TableRow& row, int64_t stored_size,
               const std::function<void(ElementRange)>& load);

  RunRanks& ranks_;
  OrderedSum& sum_;
  int64_t read_bytes_ = 0;
};

}  // namespace plimsoll
