// The arguments of the kernels of adafactor, on every backend.
#pragma once

#include "ops/binding.h"
#include "ops/optimizer/adafactor_layout.h"

namespace plimsoll {

// `Args`: the backend's, around its own `update` of the weight.
template <class Args, class Update>
Args adafactor_args(const Binding& b, const Update& update) {
  using at = operand::adafactor;
  const AdafactorLayout layout = adafactor_layout(b.input_tensor(at::gradient).shape);
  std::byte* const base = b.scratch();
  return {.update = update,
          .rows = layout.rows,
          .columns = layout.columns,
          .row = b.output<float>(at::row),
          .column = b.output<float>(at::column),
          .sums = reinterpret_cast<double*>(base),
          .row_factors = reinterpret_cast<float*>(base + layout.row_factors),
          .column_factors = reinterpret_cast<float*>(base + layout.column_factors)};
}

}  // namespace plimsoll
