// Decays of gated linear attention on the GPU.
#pragma once

#include "gpu/device.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

// log(sigmoid(x)), with the CPU's formula (ops/scan/gla_blocks.h).
PL_DEV float log_sigmoid(float x) {
  const float u = gpu::exp(x < 0 ? x : 0.0F - x);
  const float z = u / (u + 2.0F);
  const float z2 = z * z;
  float p = 1.0F / 15.0F;
  p = gpu::fma(p, z2, 1.0F / 13.0F);
  p = gpu::fma(p, z2, 1.0F / 11.0F);
  p = gpu::fma(p, z2, 1.0F / 9.0F);
  p = gpu::fma(p, z2, 1.0F / 7.0F);
  p = gpu::fma(p, z2, 1.0F / 5.0F);
  p = gpu::fma(p, z2, 1.0F / 3.0F);
  p = gpu::fma(p, z2, 1.0F);
  return (x < 0 ? x : 0.0F) - (p + p) * z;
}

// The share of a key that a state keeps, by its gate.
PL_DEV float gla_decay(float gate, float normalizer, float clamp_min) {
  return gpu::exp(gpu::max(clamp_min, log_sigmoid(gate) / normalizer));
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
