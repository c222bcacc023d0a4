// The multiply-add rate of the registers alone: what no matmul can pass.
#pragma once

#include <cstdint>

namespace plimsoll {

// Each does `rounds` rounds of independent multiply-adds on one thread and returns their FLOP (2 per
// product).
namespace avx2 {
int64_t multiply_registers(int64_t rounds);
}
namespace avx512 {
int64_t multiply_registers(int64_t rounds);
}
namespace avx512_bf16 {
int64_t multiply_registers(int64_t rounds);
}
namespace amx {
int64_t multiply_registers(int64_t rounds);
}

}  // namespace plimsoll
