// The workspace of adafactor, for its rule and for the kernels of every backend.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "tensor/tensor.h"

namespace plimsoll {

// Of a gradient [R, C], or a vector as one row. Offsets in bytes: sums f64 [R] at 0, row factors f32 [R],
// column factors f32 [C].
struct AdafactorLayout {
  int64_t rows = 1, columns = 1;
  int64_t row_factors = 0, column_factors = 0;
  int64_t bytes = 0;
};

inline AdafactorLayout adafactor_layout(const Shape& gradient) {
  constexpr int64_t kLine = 64;
  AdafactorLayout layout{.rows = gradient.rank() > 1 ? gradient[0] : 1,
                         .columns = gradient[gradient.rank() - 1]};
  layout.row_factors = round_up(layout.rows * int64_t{sizeof(double)}, kLine);
  layout.column_factors = layout.row_factors + round_up(layout.rows * int64_t{sizeof(float)}, kLine);
  layout.bytes = layout.column_factors + layout.columns * int64_t{sizeof(float)};
  return layout;
}

}  // namespace plimsoll
