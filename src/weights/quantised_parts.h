// Parts that the formats of quantised weights share: how their values are asked for, bytes of a file as they are,
// and codes by ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "formats/model_folder.h"
#include "weights/persistent_state.h"
#include "weights/rank_reader.h"

namespace plimsoll {

// Fills `to` with values of the weight from element `first` on.
using ReadValues = std::function<void(int64_t first, std::span<float> to)>;
// Takes values of the weight, in order, as the forward pass reads them.
using UseValues = std::function<void(int64_t first, std::span<const float> values)>;

// A weight that a folder holds quantised, a range of its values at a time.
class StoredCodes {
 public:
  virtual ~StoredCodes() = default;
  virtual void read(int64_t first, std::span<float> to) = 0;
};

// A plain weight as the forward pass of a QLoRA run reads it: quantised as it is loaded, and back.
class RoundTrip {
 public:
  virtual ~RoundTrip() = default;
  // The fewest rows of so many inputs that can be taken by themselves.
  [[nodiscard]] virtual int64_t least_rows(int64_t inputs) const = 0;
  // Replaces values of the weight, of such rows, which begin at `first`.
  virtual void apply(int64_t first, std::span<float> values) = 0;
};

// Rounds values to what a run computes in.
void round_to(DType compute, std::span<float> values);

// Throws UsageError unless the condition holds.
void expect(bool condition, const std::string& where, const std::string& what);
// Throws DamagedError for another size.
void expect_bytes(const StoredTensor& tensor, int64_t bytes);

// Passes a plain weight of the folder to `use`, with a chunk for values and how they are read: half of the staging is for
// values, half for what they are converted from. Throws UsageError for another shape.
void with_stored_values(
    const ModelFolder& model, const std::string& name, const Shape& shape, std::span<std::byte> staging,
    const std::function<void(const StoredTensor&, std::span<float> chunk, const ReadValues&)>& use);

// The bytes of the file's tensor of the row's name into the row; through `reader` where there is one.
void read_as_stored(const PersistentState& state, const TableRow& row, const ModelFolder& model,
                    std::span<std::byte> staging, RankReader* reader);

// Writes this rank's part of some codes, of a byte each, that begin at `start` of all.
void write_codes(const PersistentState& state, const TableRow& row, int64_t start,
                 std::span<const std::byte> codes);

// The values whose codes this rank makes, `per_byte` of them in each: its piece where ranks divide the codes, else its
// share.
RankShare share_of_codes(const PersistentState& state, const TableRow& codes, int64_t per_byte,
                         const RankReader& reader);
// Every rank makes the codes of its share by `work`, and `scales` of it; then all have all of both, but for codes that
// ranks divide or have in common.
void make_by_ranks(const PersistentState& state, const TableRow& codes, const RankShare& part,
                   int64_t per_byte, RankPieces scales, int64_t stored_bytes,
                   const std::function<void()>& work, RankReader& reader);

}  // namespace plimsoll
