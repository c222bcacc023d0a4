// Raw CPU kernels of Adafactor (Shazeer and Stern 2018) with a given learning rate: what transformers
// computes with relative_step, scale_parameter and warmup_init off and without a first moment.
#pragma once

#include "ops/optimizer/optimizer_kernels.h"

namespace plimsoll {

inline constexpr double kAdafactorEps = 1e-30;          // added to the squared gradient
inline constexpr double kAdafactorClipThreshold = 1.0;  // largest root mean square of an update
inline constexpr double kAdafactorDecayRate = -0.8;     // the averages' decay is 1 - step^rate

// The second moment of a matrix is the product of its averages by row and by column. A vector is one row
// without a row average: the column average is its whole second moment.
template <class P, class G>
struct Adafactor {
  WeightUpdate<P, G> update;  // count = rows * columns
  int64_t rows = 1, columns = 0;
  float* row = nullptr;     // [rows]; null for a vector
  float* column = nullptr;  // [columns]
  // Workspace of this call.
  double* sums = nullptr;           // [rows]
  float* row_factors = nullptr;     // [rows]
  float* column_factors = nullptr;  // [columns]
};

#define PLIMSOLL_ADAFACTOR_KERNELS(isa)                 \
  namespace isa {                                       \
  void adafactor(const Adafactor<float, float>&);       \
  void adafactor(const Adafactor<float, uint16_t>&);    \
  void adafactor(const Adafactor<uint16_t, float>&);    \
  void adafactor(const Adafactor<uint16_t, uint16_t>&); \
  }
PLIMSOLL_ADAFACTOR_KERNELS(avx2)
PLIMSOLL_ADAFACTOR_KERNELS(avx512)
PLIMSOLL_ADAFACTOR_KERNELS(avx2_f16)
#undef PLIMSOLL_ADAFACTOR_KERNELS

}  // namespace plimsoll
