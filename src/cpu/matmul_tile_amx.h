// The register tile of the matmul kernels in AMX's tile registers: 32 rows x 32 columns of C are four tiles
// of 16 x 16, which take 32 of k at a time. Include it only in *_simd.cc files, instead of matmul_tile.h.
// Pieces of A lie in a row and pass by L1 (tileloaddt1), which is left to B.
#pragma once

#include "cpu/matmul_kernel.h"
#include "cpu/matmul_pack.h"

namespace plimsoll::PLIMSOLL_ISA {

inline constexpr MatmulTile kTile = kTileAmx;
inline constexpr int kLanes = Vec::kWidth;
inline constexpr int kColumns = 2 * kLanes;
inline constexpr int kStrips = 2;                        // of A, in a panel
inline constexpr int kPieceSteps = 16;                   // of k, in a tile: pairs of bf16
inline constexpr int64_t kPiece = kPieceSteps * kLanes;  // floats of one
inline constexpr int64_t kStepOfA = kLanes;              // floats, on average: no adapter is packed here
static_assert(kTile.rows == kStrips * kLanes && kTile.k_per_step == kPerStep);

// g++ 12's intrinsics do not declare which memory they read: earlier writes must not be delayed past them.
inline void write_before(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

// Shapes of the tiles, while they are needed.
class TileRegisters {
 public:
  TileRegisters() {
    struct alignas(64) Shapes {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } shapes;
    for (int tile = 0; tile < 8; ++tile) {
      shapes.bytes[tile] = 64;
      shapes.rows[tile] = kPieceSteps;
    }
    write_before(&shapes);
    _tile_loadconfig(&shapes);
  }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

// Pieces [kLanes][kPieceSteps], zero where the operand ends.
inline void pack_rows(const Strip<uint16_t>& s, float* out) {
  for (int64_t k = 0; k < s.k; k += kPieceSteps * kPerStep, out += kPiece) {
    const int64_t left = s.k - k;
    Vec block[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      if (s.lanes_contiguous)
        block[i] = kPerStep * i < left
                       ? load_step(s, s.data + (k + kPerStep * i) * s.stride, left - kPerStep * i)
                       : zero();
      else
        block[i] = i < s.lanes ? load_run(s.data + i * s.stride + k, left) : zero();
    }
    if (s.lanes_contiguous) transpose(block);
    for (int i = 0; i < kLanes; ++i) store(out + i * kLanes, block[i]);
  }
}

// Whole pieces: what is behind the operand's end is multiplied, too, by zeros.
inline void pack_columns(const Strip<uint16_t>& s, float* out) {
  pack(s, kColumns, out);
  for (int64_t step = (s.k + kPerStep - 1) / kPerStep; step % kPieceSteps != 0; ++step)
    store(out + step * kColumns, zero());
}

// products [kTile.rows][kColumns] = a panel of A x one of B over `steps`. The order in which an element is
// summed is the hardware's, over k alone.
template <int kRowTiles, int kColumnTiles>
void multiply_tiles(int64_t steps, const Panels& p, float* products) {
  write_before(p.a);
  _tile_zero(0);
  if constexpr (kColumnTiles > 1) _tile_zero(1);
  if constexpr (kRowTiles > 1) _tile_zero(2);
  if constexpr (kRowTiles > 1 && kColumnTiles > 1) _tile_zero(3);
  const float* a = p.a;
  const float* b = p.b;
  for (int64_t step = 0; step < steps; step += kPieceSteps, a += kPiece, b += kPieceSteps * kColumns) {
    _tile_loadd(6, b, kColumns * sizeof(float));
    _tile_stream_loadd(4, a, kLanes * sizeof(float));
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kColumnTiles > 1) {
      _tile_loadd(7, b + kLanes, kColumns * sizeof(float));
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kRowTiles > 1) {
      _tile_stream_loadd(5, a + p.strip, kLanes * sizeof(float));
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kColumnTiles > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  constexpr int64_t kBelow = int64_t{kLanes} * kColumns;
  _tile_stored(0, products, kColumns * sizeof(float));
  if constexpr (kColumnTiles > 1) _tile_stored(1, products + kLanes, kColumns * sizeof(float));
  if constexpr (kRowTiles > 1) _tile_stored(2, products + kBelow, kColumns * sizeof(float));
  if constexpr (kRowTiles > 1 && kColumnTiles > 1)
    _tile_stored(3, products + kBelow + kLanes, kColumns * sizeof(float));
}

inline void multiply_panel(int64_t rows, int64_t columns, int64_t steps, const Panels& p, float* products) {
  if (rows > kLanes)
    columns > kLanes ? multiply_tiles<2, 2>(steps, p, products) : multiply_tiles<2, 1>(steps, p, products);
  else
    columns > kLanes ? multiply_tiles<1, 2>(steps, p, products) : multiply_tiles<1, 1>(steps, p, products);
}

}  // namespace plimsoll::PLIMSOLL_ISA
