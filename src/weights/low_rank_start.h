// The parts of a weight that PiSSA and OLoRA begin adapters with: factors of rank r whose product is taken
// out of the weight.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/isa.h"

namespace plimsoll {

// A weight [out, in], row by row, in f32.
struct WeightView {
  std::span<const float> values;
  int64_t out = 0, in = 0;
};

struct LowRank {
  std::vector<float> a;  // [r, in]
  std::vector<float> b;  // [out, r]
};

// PiSSA: the r largest singular values with their vectors, the root of each value over `scale` to either
// side, so that scale * b a is their part of the weight. By subspace iteration from vectors that `seed`
// gives: so many iterations, or with 0 until the values stay where they are.
LowRank principal_part(const WeightView& weight, int64_t r, double scale, int64_t iterations, uint64_t seed,
                       Isa isa, int threads);

// OLoRA: the first r columns of Q and rows of R of the weight's QR decomposition.
LowRank leading_part(const WeightView& weight, int64_t r, Isa isa, int threads);

// Host memory in addition to the weight's own values.
int64_t low_rank_bytes(int64_t out, int64_t in, int64_t r);

}  // namespace plimsoll
