#include <cstring>

#include "base/units.h"
#include "calibrate/measure.h"
#include "cpu/matmul.h"
#include "runtime/arena.h"

namespace plimsoll {
namespace {

// A product of the program: which of its three matrices is the weight or its gradient, that comes from memory
// and not from a cache, and along which axis its tokens run.
struct Form {
  MatmulShape types;
  enum class Cold : uint8_t { b, c } cold;
  bool tokens_are_k;
};

std::vector<Form> forms() {
  std::vector<Form> list;
  for (const DType t : {DType::f32, DType::bf16}) {
    list.push_back({{.a = t, .b = t, .c = t, .b_transposed = true}, Form::Cold::b, false});  // linear
    list.push_back({{.a = t, .b = t, .c = t}, Form::Cold::b, false});                        // linear_dx
    list.push_back({{.a = t, .b = t, .c = DType::f32, .a_transposed = true}, Form::Cold::c, true});  // _dw
  }
  list.push_back({{.a = DType::bf16, .b = DType::bf16, .c = DType::bf16, .a_transposed = true},
                  Form::Cold::c,
                  true});  // linear_dw into bf16 gradients
  return list;
}

struct Sizes {
  std::vector<int64_t> tokens, features;
};
Sizes sizes(bool quick) {
  if (quick) return {{1, 64, 512}, {16, 256, 2048}};
  return {{1, 64, 256, 512, 1024, 2048}, {8, 16, 64, 256, 512, 1024, 4096}};
}

constexpr int64_t kPoolBytes = 256 * kMiB;  // a last-level cache holds no two passes over it

// Memory that hands out fresh bytes in turn, so that no cache holds them still.
class ColdPool {
 public:
  explicit ColdPool(int threads) : arena_(kPoolBytes, threads) {}
  std::byte* next(int64_t bytes) {
    if (offset_ + bytes > kPoolBytes) offset_ = 0;
    std::byte* const at = arena_.data() + offset_;
    offset_ += round_up(bytes, 64);
    return at;
  }

 private:
  Arena arena_;
  int64_t offset_ = 0;
};

// The memory of the other operands and the workspace; it grows to the largest need.
class WarmBuffer {
 public:
  std::byte* of(int64_t bytes, int threads) {
    if (arena_ == nullptr || arena_->bytes() < bytes) arena_ = std::make_unique<Arena>(bytes, threads);
    return arena_->data();
  }

 private:
  std::unique_ptr<Arena> arena_;
};

class MatmulBench {
 public:
  explicit MatmulBench(const CalibrateOptions& options) : options_(options), cold_(options.cpu.threads) {}

  double flop_rate(const Form& form, const MatmulShape& shape) {
    const int threads = options_.cpu.threads;
    const auto matmul = Matmul::create(shape, options_.cpu.isa, threads);
    const int64_t a = shape.m * shape.k * size_of(shape.a);
    const int64_t b = shape.n * shape.k * size_of(shape.b);
    const int64_t c = shape.m * shape.n * size_of(shape.c);
    const bool cold_b = form.cold == Form::Cold::b;
    Matmul::Args args{.a = a_.of(a, threads),
                      .live = shape.a_transposed ? shape.k : shape.m,
                      .scratch = scratch_.of(std::max<int64_t>(matmul->scratch_bytes(), 64), threads)};
    std::byte* const warm = warm_.of(cold_b ? c : b, threads);
    const auto run = [&] {
      args.b = cold_b ? cold_.next(b) : warm;
      args.c = cold_b ? warm : cold_.next(c);
      matmul->run(args);
    };
    run();
    const double seconds = least_seconds(options_.quick ? 2 : 3, options_.quick ? 5e-4 : 4e-3, run);
    return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k) /
           seconds;
  }

 private:
  const CalibrateOptions& options_;
  ColdPool cold_;
  WarmBuffer a_, warm_, scratch_;
};

MatmulGrid measure_grid(MatmulBench& bench, const Form& form, const Sizes& sizes) {
  MatmulGrid grid{form.types,
                  form.tokens_are_k ? sizes.features : sizes.tokens,
                  sizes.features,
                  form.tokens_are_k ? sizes.tokens : sizes.features,
                  {}};
  for (const int64_t m : grid.m)
    for (const int64_t n : grid.n)
      for (const int64_t k : grid.k) {
        MatmulShape shape = form.types;
        shape.m = m;
        shape.n = n;
        shape.k = k;
        grid.flop_rates.push_back(bench.flop_rate(form, shape));
      }
  return grid;
}

}  // namespace

void measure_matmuls(const CalibrateOptions& options, DeviceRates& rates, const PartProgress& progress) {
  MatmulBench bench(options);
  const std::vector<Form> list = forms();
  for (size_t i = 0; i < list.size(); ++i) {
    progress(static_cast<double>(i) / static_cast<double>(list.size()));
    rates.matmuls.push_back(measure_grid(bench, list[i], sizes(options.quick)));
    const auto& measured = rates.matmuls.back().flop_rates;
    double& best = list[i].types.a == DType::bf16 ? rates.matmul_bf16 : rates.matmul_f32;
    const double peak = *std::max_element(measured.begin(), measured.end());
    best = i == 0 || list[i].types.a != list[i - 1].types.a ? peak : std::max(best, peak);
  }
}

}  // namespace plimsoll
