// Dense row-major matmul on the CPU: C = (accumulate ? C : 0) + alpha * A * B + adapter_alpha * T * U + bias, T
// U being the fused adapter, a second product summed into the same C, of shapes that have one.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "device/description.h"

namespace plimsoll {

// One shape bound once. A and B are both f32, bf16 or f16, C is f32 or of halves and is rounded once. f16 is
// computed with AVX2 on every machine. An element's
// reduction order follows from the bound k and kernel alone: not from m, the live count or its row.
class Matmul {
 public:
  struct Args {
    const void* a = nullptr;
    const void* b = nullptr;
    void* c = nullptr;
    int64_t live = 0;  // rows of stored A that count (m, or k when a_transposed); the rest is not read,
                       // and rows of C beyond live m are not touched
    bool accumulate = false;
    float alpha = 1.0F;
    const void* bias = nullptr;       // [n] of C's type, or null
    const void* adapter_a = nullptr;  // [m, adapter]: its rows count where A's do
    const void* adapter_b = nullptr;
    float adapter_alpha = 1.0F;
    void* scratch = nullptr;  // scratch_bytes(), aligned to 64
  };

  // Throws InternalError for types that it does not know.
  static std::unique_ptr<Matmul> create(const MatmulShape& shape, Isa isa, int threads);

  Matmul() = default;
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;
  virtual ~Matmul() = default;

  [[nodiscard]] virtual int64_t scratch_bytes() const = 0;
  // Bits are promised within one id and thread count: "own-avx512-bf16", "own-amx-bf16", ...
  [[nodiscard]] virtual std::string_view kernel_id() const = 0;
  // Allocates nothing.
  virtual void run(const Args& args) const = 0;
};

// A fused adapter's product behind that of A and B, into the same C: what create() does for kernels that read words
// of two bf16.
std::unique_ptr<Matmul> create_adapter_apart(const MatmulShape& shape, Isa isa, int threads);

// The value of create(...)->scratch_bytes().
int64_t matmul_scratch_bytes(const MatmulShape& shape, Isa isa, int threads);

}  // namespace plimsoll
