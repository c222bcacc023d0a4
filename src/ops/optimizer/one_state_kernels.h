// Raw CPU kernels of the optimizers with at most one state: Lion and SGD.
#pragma once

#include "ops/optimizer/optimizer_kernels.h"

namespace plimsoll {

// S: state m. Chen et al. 2023, decoupled weight decay.
template <class P, class G, class S>
struct Lion {
  WeightUpdate<P, G> update;
  double beta1 = 0.9, beta2 = 0.99;
  S* m = nullptr;
};

// PyTorch's SGD without dampening; its weight decay is an L2 term of the gradient. S: momentum buffer, null
// without momentum.
template <class P, class G, class S>
struct Sgd {
  WeightUpdate<P, G> update;
  double momentum = 0;
  S* buffer = nullptr;
};

#define PLIMSOLL_ONE_STATE_KERNELS(isa, name, Args)     \
  namespace isa {                                       \
  void name(const Args<float, float, float>&);          \
  void name(const Args<float, uint16_t, float>&);       \
  void name(const Args<float, float, uint16_t>&);       \
  void name(const Args<float, uint16_t, uint16_t>&);    \
  void name(const Args<uint16_t, float, float>&);       \
  void name(const Args<uint16_t, uint16_t, float>&);    \
  void name(const Args<uint16_t, float, uint16_t>&);    \
  void name(const Args<uint16_t, uint16_t, uint16_t>&); \
  }
PLIMSOLL_ONE_STATE_KERNELS(avx2, lion, Lion)
PLIMSOLL_ONE_STATE_KERNELS(avx512, lion, Lion)
PLIMSOLL_ONE_STATE_KERNELS(avx2_f16, lion, Lion)
PLIMSOLL_ONE_STATE_KERNELS(avx2, sgd, Sgd)
PLIMSOLL_ONE_STATE_KERNELS(avx512, sgd, Sgd)
PLIMSOLL_ONE_STATE_KERNELS(avx2_f16, sgd, Sgd)
#undef PLIMSOLL_ONE_STATE_KERNELS

}  // namespace plimsoll
