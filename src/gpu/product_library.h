// Dense matrix products by a library of the card's maker, where a machine has one. The op that launches a
// product asks the library once for it; products that it refuses are computed by the program's own kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/rates.h"

namespace plimsoll::gpu {

// C = alpha * A B [+ C] [+ bias], as MatmulShape has it: sums in f32. Addresses are the card's. The addend
// lies in C: cuBLASLt rounded otherwise where it was read from elsewhere (bf16, on an H200).
struct LibraryMatmul {
  MatmulShape shape = {};  // as planned: the most that it will be
  bool tf32 = false;       // f32 operands are cut to 10 bits of mantissa
  float alpha = 1.0F;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // [n] of C's type
  std::span<std::byte> workspace = {};
};

// A product that the library computes, by an algorithm chosen once: the same bits each time.
class LibraryProduct {
 public:
  virtual ~LibraryProduct() = default;
  // Launches it on the queue `stream` (Stream::handle) over the first `live` rows of stored A: of m, or of k
  // where A is transposed; at least one. `adds`: to what C holds. False: the library refuses so
  // many rows, and nothing was launched. Allocates no memory of the card's but for code that it loads first.
  [[nodiscard]] virtual bool run(void* stream, int64_t live, bool adds) const = 0;
  // Has its code loaded: computes a few rows into the workspace, where that holds them.
  virtual void load(void* stream) const = 0;
};

// The number of products that were bound, and of those the ones that the program's own kernels compute.
struct ProductUse {
  int64_t requested = 0;
  int64_t refused = 0;
  int64_t refused_runs = 0;  // for their number of rows
};

class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;
  // "cuBLASLt 13.1.0": what bits are promised within.
  [[nodiscard]] virtual std::string name() const = 0;
  // nullptr: it refuses that. The library must outlive it.
  [[nodiscard]] virtual std::unique_ptr<LibraryProduct> find(const LibraryMatmul& matmul) = 0;

  ProductUse use;
};

}  // namespace plimsoll::gpu
