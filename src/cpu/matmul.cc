#include "cpu/matmul.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "cpu/matmul_kernel.h"

namespace plimsoll {
namespace {

struct Kernel {
  std::string_view id;
  MatmulTile tile;
  int64_t max_steps;  // of a block of k: the strips of A and B must stay in L2
  int64_t panels;     // of A packed at once
  void (*run)(const MatmulTask&);
};
constexpr Kernel kAvx2 = {"own-avx2-f32", kTileAvx2, 384, 16, avx2::run_matmul};
constexpr Kernel kAvx2F16 = {"own-avx2-f16", kTileAvx2, 384, 16, avx2_f16::run_matmul};
constexpr Kernel kAvx512 = {"own-avx512-f32", kTileAvx512, 1024, 8, avx512::run_matmul};
constexpr Kernel kAvx512Bf16 = {"own-avx512-bf16", kTileAvx512Bf16, 1024, 8, avx512_bf16::run_matmul};
constexpr Kernel kAmx = {"own-amx-bf16", kTileAmx, 1024, 8, amx::run_matmul};

// Columns packed at once, and rows whose f32 sums wait for a C of halves: 4 MiB and 2 MiB at most, half an
// L3.
constexpr int64_t kBlockColumns = 1024;
constexpr int64_t kSumRows = 512;
constexpr int64_t kShortAdapter = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

const Kernel& choose_kernel(const MatmulShape& shape, Isa isa) {
  if (shape.a == DType::f16 || shape.c == DType::f16) return kAvx2F16;
  if (isa == Isa::avx2) return kAvx2;
  if (isa == Isa::avx512 || shape.a == DType::f32) return kAvx512;
  return isa == Isa::amx ? kAmx : kAvx512Bf16;
}

MatmulBlocks cut(const MatmulShape& shape, const Kernel& kernel) {
  const int64_t unit = int64_t{kernel.tile.lanes} * kernel.tile.k_per_step;
  const int64_t all = shape.k + shape.adapter;
  // A short second product makes no block of its own: sums would be brought to C and back once more.
  const int64_t counted = shape.adapter <= kShortAdapter ? shape.k : all;
  const int64_t k_blocks = std::max<int64_t>(1, ceil_div(counted, kernel.max_steps * kernel.tile.k_per_step));
  const int64_t k = round_up(std::max<int64_t>(1, ceil_div(all, k_blocks)), unit);
  const int64_t n = round_up(std::min(shape.n, kBlockColumns), 2 * kernel.tile.lanes);
  const bool sums = size_of(shape.c) == 2 && all > k;
  const int64_t m = sums ? std::min(shape.m, kSumRows) : shape.m;
  return {k, n, m, std::min(kernel.panels, ceil_div(m, kernel.tile.rows))};
}

// The three parts of the scratch, in floats; each is a multiple of 64 bytes.
struct Scratch {
  int64_t packed_b, packed_a_per_thread, sums;
};

Scratch scratch_of(const MatmulShape& shape, const Kernel& kernel, const MatmulBlocks& blocks) {
  const int64_t steps = blocks.k / kernel.tile.k_per_step;
  const bool sums = size_of(shape.c) == 2 && shape.k + shape.adapter > blocks.k;
  const int64_t rows = round_up(kernel.tile.rows, kernel.tile.lanes);  // of a packed panel
  return {steps * blocks.n, steps * rows * blocks.panels, sums ? blocks.m * blocks.n : 0};
}

class BlockedMatmul final : public Matmul {
 public:
  BlockedMatmul(const MatmulShape& shape, const Kernel& kernel, int threads)
      : shape_(shape),
        kernel_(kernel),
        threads_(threads),
        blocks_(cut(shape, kernel)),
        scratch_(scratch_of(shape, kernel, blocks_)) {}

  [[nodiscard]] int64_t scratch_bytes() const override {
    return (scratch_.packed_b + scratch_.packed_a_per_thread * threads_ + scratch_.sums) *
           static_cast<int64_t>(sizeof(float));
  }
  [[nodiscard]] std::string_view kernel_id() const override { return kernel_.id; }

  void run(const Args& args) const override {
    auto* scratch = static_cast<float*>(args.scratch);
    float* packed_a = scratch + scratch_.packed_b;
    kernel_.run({.m = shape_.a_transposed ? shape_.m : args.live,
                 .n = shape_.n,
                 .k = shape_.a_transposed ? args.live : shape_.k,
                 .a = args.a,
                 .b = args.b,
                 .c = args.c,
                 .bias = args.bias,
                 .in_halves = size_of(shape_.a) == 2,
                 .out_halves = size_of(shape_.c) == 2,
                 .a_transposed = shape_.a_transposed,
                 .b_transposed = shape_.b_transposed,
                 .a_stride = shape_.a_transposed ? shape_.m : shape_.k,
                 .b_stride = shape_.b_transposed ? shape_.k : shape_.n,
                 .adapter = shape_.adapter,
                 .adapter_a = args.adapter_a,
                 .adapter_b = args.adapter_b,
                 .adapter_scale = args.adapter_alpha / args.alpha,
                 .accumulate = args.accumulate,
                 .alpha = args.alpha,
                 .blocks = blocks_,
                 .threads = threads_,
                 .packed_b = scratch,
                 .packed_a = packed_a,
                 .packed_a_stride = scratch_.packed_a_per_thread,
                 .sums = packed_a + scratch_.packed_a_per_thread * threads_});
  }

 private:
  MatmulShape shape_;
  const Kernel& kernel_;
  int threads_;
  MatmulBlocks blocks_;
  Scratch scratch_;
};

static_assert(kThinColumnsAtMost == kThinLanes);

class ThinMatmul final : public Matmul {
 public:
  ThinMatmul(const MatmulShape& shape, int threads)
      : shape_(shape), threads_(threads), wide_rows_(shape.n <= shape.m) {}

  [[nodiscard]] int64_t scratch_bytes() const override {
    return (words() + kThinLanes * kThinColumns * threads_) * static_cast<int64_t>(sizeof(float));
  }
  [[nodiscard]] std::string_view kernel_id() const override { return "own-avx512-bf16-thin"; }

  void run(const Args& args) const override {
    auto* scratch = static_cast<float*>(args.scratch);
    avx512_bf16::run_thin({.k = args.live,
                           .wide = wide_rows_ ? shape_.m : shape_.n,
                           .thin = wide_rows_ ? shape_.n : shape_.m,
                           .x = wide_rows_ ? args.a : args.b,
                           .t = wide_rows_ ? args.b : args.a,
                           .c = args.c,
                           .bias = args.bias,
                           .wide_rows = wide_rows_,
                           .out_bf16 = shape_.c == DType::bf16,
                           .accumulate = args.accumulate,
                           .alpha = args.alpha,
                           .threads = threads_,
                           .words = scratch,
                           .sums = scratch + words()});
  }

 private:
  [[nodiscard]] int64_t words() const { return ceil_div(shape_.k, 2) * kThinLanes; }

  MatmulShape shape_;
  int threads_;
  bool wide_rows_;  // C is [wide, thin]
};

class AdapterApart final : public Matmul {
 public:
  AdapterApart(const MatmulShape& shape, Isa isa, int threads)
      : product_(Matmul::create(without_adapter(shape, shape.k), isa, threads)),
        adapter_(Matmul::create(without_adapter(shape, shape.adapter), isa, threads)) {}

  [[nodiscard]] int64_t scratch_bytes() const override {
    return std::max(product_->scratch_bytes(), adapter_->scratch_bytes());
  }
  [[nodiscard]] std::string_view kernel_id() const override { return product_->kernel_id(); }

  void run(const Args& args) const override {
    product_->run(args);
    adapter_->run({.a = args.adapter_a,
                   .b = args.adapter_b,
                   .c = args.c,
                   .live = args.live,
                   .accumulate = true,
                   .alpha = args.adapter_alpha,
                   .scratch = args.scratch});
  }

 private:
  static MatmulShape without_adapter(MatmulShape shape, int64_t k) {
    shape.k = k;
    shape.adapter = 0;
    return shape;
  }

  std::unique_ptr<Matmul> product_, adapter_;
};

void check_types(const MatmulShape& shape) {
  const auto known = [](DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16; };
  const bool one_kind = size_of(shape.a) != size_of(shape.c) || shape.a == shape.c;
  check_internal(known(shape.a) && shape.a == shape.b && known(shape.c) && one_kind,
                 "matmul: A and B must both be f32, bf16 or f16, and C f32 or of the same halves");
}

}  // namespace

std::unique_ptr<Matmul> Matmul::create(const MatmulShape& shape, Isa isa, int threads) {
  check_types(shape);
  check_internal(shape.adapter == 0 || !shape.a_transposed, "matmul: a fused adapter of a product over rows");
  const Kernel& kernel = choose_kernel(shape, isa);
  if (kernel.tile.k_per_step == 2 && shape.adapter > 0) return create_adapter_apart(shape, isa, threads);
  if (kernel.tile.k_per_step == 2 && is_thin(shape)) return std::make_unique<ThinMatmul>(shape, threads);
  return std::make_unique<BlockedMatmul>(shape, kernel, threads);
}

std::unique_ptr<Matmul> create_adapter_apart(const MatmulShape& shape, Isa isa, int threads) {
  return std::make_unique<AdapterApart>(shape, isa, threads);
}

int64_t matmul_scratch_bytes(const MatmulShape& shape, Isa isa, int threads) {
  return Matmul::create(shape, isa, threads)->scratch_bytes();
}

}  // namespace plimsoll
