// The workspace of adafactor, for its rule and for the kernels of every backend.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "tensor/tensor.h"

namespace plimsoll {

// Returns true if a second moment is kept in rows and columns. Taps of a convolution [D, 1, W] are not:
// PyTorch and transformers factor the last two dimensions, of which one is 1, so that nothing is gained or
// changed.
inline bool is_factored(const Shape& gradient) { return gradient.rank() == 2; }

// The layout for a gradient [R, C], or for all of another as one row. Offsets in bytes: sums f64 [R] at 0,
// row factors f32 [R], column factors f32 [C].
struct AdafactorLayout {
  int64_t rows = 1, columns = 1;
  int64_t row_factors = 0, column_factors = 0;
  int64_t bytes = 0;
};

inline AdafactorLayout adafactor_layout(const Shape& gradient) {
  constexpr int64_t kLine = 64;
  AdafactorLayout layout{.rows = is_factored(gradient) ? gradient[0] : 1,
                         .columns = is_factored(gradient) ? gradient[1] : gradient.elements()};
  layout.row_factors = round_up(layout.rows * int64_t{sizeof(double)}, kLine);
  layout.column_factors = layout.row_factors + round_up(layout.rows * int64_t{sizeof(float)}, kLine);
  layout.bytes = layout.column_factors + layout.columns * int64_t{sizeof(float)};
  return layout;
}

}  // namespace plimsoll
