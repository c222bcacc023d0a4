// Coefficients of the functions in activations_simd.cc and activations_gpu.cu, which explain them. Types, as
// kernels for GPUs see no constant arrays but their own.
#pragma once

namespace plimsoll {

inline constexpr float kGeluSlope = 1.5957691216F;  // 2 sqrt(2 / pi)
inline constexpr float kGeluCube = 0.044715F;

// The normal distribution beyond a >= 0 is e^(-a^2 / 2) t P(t), t = 1 / (1 + kNormalTailScale a); P is a
// minimax fit, within 1.2e-8 of it, relative, up to kNormalEnd.
inline constexpr float kNormalTailScale = 0.31F;
inline constexpr float kNormalEnd = 40.0F;
inline constexpr float kNormalAtZero = 0.398942280F;  // its density
struct NormalTail {
  float c[10] = {0.123672565F,   0.12365317F,  0.112108081F,  0.0850761651F, 0.072007042F,
                 -0.0343625965F, 0.119191132F, -0.184067443F, 0.103575304F,  -0.0208534256F};
};

// tanh(x) = x P(x^2) / Q(x^2) up to kTanhEnd, beyond which f32 has no number between it and 1; a minimax fit,
// within 7e-9 of it, relative.
inline constexpr float kTanhEnd = 9.02F;
struct TanhOver {
  float c[7] = {1.0F,           0.130831483F,    0.0031029918F, 1.11441585e-5F, -2.01835881e-8F,
                5.2576055e-11F, -8.43562537e-14F};
};
struct TanhUnder {
  float c[4] = {1.0F, 0.464164752F, 0.0244913428F, 0.000254473741F};
};

}  // namespace plimsoll
