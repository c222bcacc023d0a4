// For tests of raw kernels: bf16 values, buffers with guard bytes, and the instruction sets this CPU has.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "device/description.h"

namespace plimsoll::kernel_test {

inline std::vector<Isa> isas_here() {
  std::vector<Isa> isas;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isas.push_back(Isa::avx2);
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    isas.push_back(Isa::avx512);
    if (__builtin_cpu_supports("avx512bf16")) isas.push_back(Isa::avx512_bf16);
  }
  return isas;
}
// Calls an instruction set's kernel; its overloads lie in a namespace of that name.
#define PLIMSOLL_RUN_KERNEL(isa, kernel, arguments)               \
  ((isa) == Isa::avx2     ? ::plimsoll::avx2::kernel(arguments)   \
   : (isa) == Isa::avx512 ? ::plimsoll::avx512::kernel(arguments) \
                          : ::plimsoll::avx512_bf16::kernel(arguments))

template <class T>
T from_double(double x) {
  const auto f = static_cast<float>(x);
  if constexpr (sizeof(T) == 4) {
    return f;
  } else {
    const auto bits = std::bit_cast<uint32_t>(f);
    return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
  }
}
inline double to_double(float x) { return static_cast<double>(x); }
inline double to_double(uint16_t x) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(x) << 16));
}

// Values followed and preceded by guard bytes, which intact() looks at.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t count)
      : count_(static_cast<size_t>(count)), bytes_(count_ * sizeof(T) + 2 * kGuard, kFill) {}
  T* data() { return reinterpret_cast<T*>(bytes_.data() + kGuard); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + kGuard); }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(count_); }
  [[nodiscard]] bool intact() const {
    for (size_t i = 0; i < kGuard; ++i)
      if (bytes_[i] != kFill || bytes_[bytes_.size() - 1 - i] != kFill) return false;
    return true;
  }
  friend bool operator==(const Guarded&, const Guarded&) = default;

 private:
  static constexpr size_t kGuard = 64;
  static constexpr unsigned char kFill = 0xA5;
  size_t count_;
  std::vector<unsigned char> bytes_;
};

template <class T>
Guarded<T> random_values(int64_t count, unsigned seed, double spread = 1.0) {
  Guarded<T> out(count);
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0.0, spread);
  for (int64_t i = 0; i < count; ++i) out[i] = from_double<T>(normal(generator));
  return out;
}

}  // namespace plimsoll::kernel_test
