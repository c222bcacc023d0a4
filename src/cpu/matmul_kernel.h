// The interface between matmul.cc and the kernels compiled per instruction set: plain data, no library
// templates (cmake/plimsoll.cmake, plimsoll_simd).
#pragma once

#include <cstdint>

namespace plimsoll {

// The register tile of a kernel. A packed 32-bit element holds one f32, or two bf16 neighbours in k.
struct MatmulTile {
  int lanes;  // 32-bit elements of a vector register
  int rows;   // rows of C held in registers, as many as strips of `lanes` rows hold; columns are 2 * lanes
  int k_per_step;  // k consumed by one packed element
};
inline constexpr MatmulTile kTileAvx2 = {8, 6, 1};
inline constexpr MatmulTile kTileAvx512 = {16, 14, 1};
inline constexpr MatmulTile kTileAvx512Bf16 = {16, 14, 2};
inline constexpr MatmulTile kTileAmx = {16, 32, 2};

// The sizes at which the loops are cut. All follow from the bound shape, never from the live count, so that
// an element's reduction is cut at the same places in every call.
struct MatmulBlocks {
  int64_t k;       // k of one packed block, a multiple of lanes * k_per_step
  int64_t n;       // columns packed at once, a multiple of 2 * lanes
  int64_t m;       // rows computed before k moves on, and before sums are rounded to halves
  int64_t panels;  // panels of tile.rows rows of A that a thread packs at once
};

struct MatmulTask {
  int64_t m, n, k;  // live sizes
  const void* a;
  const void* b;
  void* c;
  const void* bias;
  bool in_halves, out_halves;  // bf16, or f16 where that is what the kernel computes in
  bool a_transposed, b_transposed;
  int64_t a_stride, b_stride;  // elements from one stored row to the next
  // The fused adapter: `adapter` more of k, behind those of A and B. Not for kernels with two of k in an element, since
  // its B is scaled as packed.
  int64_t adapter;
  const void* adapter_a;  // [m, adapter]
  const void* adapter_b;  // stored as B is
  float adapter_scale;    // on top of alpha
  bool accumulate;
  float alpha;
  MatmulBlocks blocks;
  int threads;
  float* packed_b;          // [n panels][k steps][2 * lanes], shared by the threads
  float* packed_a;          // per thread [panels][strips][k steps][lanes], or [lanes][k steps] in pieces
  int64_t packed_a_stride;  // floats from one thread's packed_a to the next
  float* sums;              // [blocks.m][blocks.n], only for a C of halves with several k blocks
};

// C = (accumulate ? C : 0) + alpha * X^T T + bias, or with T^T X; bf16 X [k, wide] and T [k, thin].
inline constexpr int64_t kThinLanes = 16;     // `thin` at most
inline constexpr int64_t kThinColumns = 128;  // columns of X whose sums lie in L1
struct ThinTask {
  int64_t k, wide, thin;
  const void* x;
  const void* t;
  void* c;           // [wide, thin] where wide_rows, else [thin, wide]
  const void* bias;  // of a row of C, or null
  bool wide_rows, out_bf16, accumulate;
  float alpha;
  int threads;
  float* words;  // [ceil(k / 2)][kThinLanes]
  float* sums;   // per thread [kThinLanes][kThinColumns]
};

namespace avx2 {
void run_matmul(const MatmulTask& task);
}
namespace avx2_f16 {
void run_matmul(const MatmulTask& task);
}
namespace avx512 {
void run_matmul(const MatmulTask& task);
}
namespace avx512_bf16 {
void run_matmul(const MatmulTask& task);  // bf16 inputs only
void run_thin(const ThinTask& task);
}  // namespace avx512_bf16
namespace amx {
void run_matmul(const MatmulTask& task);  // bf16 inputs only
}

}  // namespace plimsoll
