// Arguments that all optimizers' raw kernels take: the weight, its gradient, and the numbers of one step.
#pragma once

#include <cstdint>

namespace plimsoll {

// The same for all weights but the weight decay.
struct UpdateStep {
  double learning_rate = 0, weight_decay = 0;
  double clip_factor = 1;  // multiplied into the gradient
  int64_t step = 1;        // counts from 1; bias corrections and random bits follow from it
  uint64_t seed = 0;       // of the random bits
};

// P: weight, f32 or bf16. G: gradient. bf16 weights (and states) are rounded stochastically, their bits keyed
// by (seed, step, name, element).
template <class P, class G>
struct WeightUpdate {
  UpdateStep step;
  uint64_t name_hash = 0;
  P* weight = nullptr;
  uint16_t* copy = nullptr;  // bf16 copy of an f32 weight, rounded to nearest; may be null
  const G* gradient = nullptr;
  int64_t count = 0;
  int64_t first_element = 0;  // index of weight[0] in the whole tensor, a multiple of 256
  int threads = 1;
};

}  // namespace plimsoll
