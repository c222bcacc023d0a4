// NF4 weights of a state (ops/linear/nf4.h): quantised while they are loaded, or read from a bitsandbytes
// checkpoint.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/model_folder.h"
#include "weights/quantised_parts.h"
#include "weights/weights.h"

namespace plimsoll {

// The tensors of one quantised weight; the nested ones are null where its scales are f32.
struct Nf4Rows {
  const TableRow* codes = nullptr;
  const TableRow* absmax = nullptr;
  const TableRow* nested_absmax = nullptr;
  const TableRow* nested_map = nullptr;
  const TableRow* nested_offset = nullptr;
  [[nodiscard]] Shape weight_shape() const { return {codes->whole_shape()[0], 2 * codes->whole_shape()[1]}; }
};
// None where the row is no quantised weight's codes.
std::optional<Nf4Rows> find_nf4(const PersistentState& state, const TableRow& row);

// Quantises the values that `read` gives, `chunk` at a time. Of codes that ranks divide, this rank keeps its own. Throws
// DamagedError for one that is not finite.
void quantise_values(const PersistentState& state, const Nf4Rows& rows, std::span<float> chunk,
                     const ReadValues& read);

// From a folder of either kind: a plain weight is quantised, one that bitsandbytes has quantised is read as
// it is. `staging` is all the memory used, but for a piece's codes and the weight's scales, in f32 and
// nested. `reader` (null: none): each of several ranks reads and quantises its share; the bits are those of one.
void load_nf4(const PersistentState& state, const Nf4Rows& rows, const ModelFolder& model,
              std::span<std::byte> staging, RankReader* reader = nullptr);

// Passes all values of the weight to `use`.
void visit_nf4(const PersistentState& state, const Nf4Rows& rows, std::span<std::byte> staging,
               const UseValues& use);

// The small facts of a quantised weight, which bitsandbytes keeps as JSON in a tensor of bytes.
struct Nf4State {
  bool nested = false;
  float offset = 0;
};

// A weight that a folder holds in 4 bits.
class StoredNf4 final : public StoredCodes {
 public:
  // `model` outlives it. Throws UsageError for another shape or another format, DamagedError for tensors that do not belong together.
  StoredNf4(const ModelFolder& model, const std::string& name, const Shape& shape);
  void read(int64_t first, std::span<float> to) override;

 private:
  // Reads the scales of blocks from `first` on: one scale of the nested ones at a time, since a piece may
  // begin within one.
  void read_scales(int64_t first, int64_t count);

  StoredTensor codes_, absmax_, nested_;
  Nf4State state_;
  std::array<float, 256> map_{};
  std::vector<uint8_t> bytes_;
  std::vector<float> scales_;
};

class Nf4RoundTrip final : public RoundTrip {
 public:
  // Reads the whole weight once, for its scales. `nested`: double quantisation; `compute`: what the run
  // computes in. `staging` is all the memory used but for the scales.
  Nf4RoundTrip(const StoredTensor& weight, bool nested, DType compute, std::span<std::byte> staging);
  // Rows that end with a block.
  [[nodiscard]] int64_t least_rows(int64_t inputs) const override;
  void apply(int64_t first, std::span<float> values) override;

 private:
  DType compute_;
  std::vector<float> scales_, found_;
  std::vector<uint8_t> codes_;
};

// Returns true if the folder holds this weight quantised by bitsandbytes.
bool stores_nf4(const ModelFolder& model, const std::string& weight);

}  // namespace plimsoll
