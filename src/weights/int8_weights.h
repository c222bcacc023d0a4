// int8 weights of a state (ops/linear/int8.h): quantised while they are loaded, or read from a bitsandbytes
// checkpoint.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/model_folder.h"
#include "weights/quantised_parts.h"
#include "weights/weights.h"

namespace plimsoll {

// The tensors of one weight in 8 bits.
struct Int8Rows {
  const TableRow* codes = nullptr;
  const TableRow* absmax = nullptr;
  [[nodiscard]] const Shape& weight_shape() const { return codes->whole_shape(); }
};
// None where the row is no such weight's codes.
std::optional<Int8Rows> find_int8(const PersistentState& state, const TableRow& row);

// Quantises the values that `read` gives, as many whole rows at a time as `chunk` holds. Of codes that ranks divide,
// this rank keeps its own. Throws DamagedError for one that f16 does not hold.
void quantise_values(const PersistentState& state, const Int8Rows& rows, std::span<float> chunk,
                     const ReadValues& read);

// From a folder of either kind: a plain weight is quantised, one that bitsandbytes has quantised is read as it is.
// `staging` is all the memory used, but for a piece's codes and the weight's scales. `reader` (null: none): each of
// several ranks reads and quantises its share; the bits are those of one.
void load_int8(const PersistentState& state, const Int8Rows& rows, const ModelFolder& model,
               std::span<std::byte> staging, RankReader* reader = nullptr);

// Passes all values of the weight to `use`.
void visit_int8(const PersistentState& state, const Int8Rows& rows, std::span<std::byte> staging,
                const UseValues& use);

// A weight that a folder holds in 8 bits.
class StoredInt8 final : public StoredCodes {
 public:
  // `model` outlives it. Throws UsageError for another shape or another format, DamagedError for tensors that do not belong together.
  StoredInt8(const ModelFolder& model, const std::string& name, const Shape& shape);
  void read(int64_t first, std::span<float> to) override;

 private:
  StoredTensor codes_;
  int64_t width_ = 0;
  std::vector<float> absmax_;
  std::vector<int8_t> bytes_;
};

class Int8RoundTrip final : public RoundTrip {
 public:
  // `weight`: its name, for errors; `compute`: what the run computes in.
  Int8RoundTrip(std::string weight, int64_t width, DType compute)
      : weight_(std::move(weight)), width_(width), compute_(compute) {}
  [[nodiscard]] int64_t least_rows(int64_t) const override { return 1; }
  void apply(int64_t first, std::span<float> values) override;

 private:
  std::string weight_;
  int64_t width_;
  DType compute_;
  std::vector<float> absmax_;
  std::vector<int8_t> codes_;
};

// Returns true if the folder holds this weight quantised by bitsandbytes.
bool stores_int8(const ModelFolder& model, const std::string& weight);

}  // namespace plimsoll
