// GFLOP/s of the matmul kernels beside the register peak, at the shapes of a 0.5 B model.
//   matmul_bench [THREADS [KERNEL]]      KERNEL: avx2-f32, avx512-f32, avx512-bf16, amx-bf16 (default: all
//   there are)
// The best of several runs is shown: other load on the machine only ever slows one down.
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "bench/clock.h"
#include "bench/peak.h"
#include "cpu/isa.h"
#include "cpu/matmul.h"
#include "cpu/threads.h"

namespace plimsoll {
namespace {

struct Family {
  std::string_view name;
  Isa isa;
  DType type;
  int64_t (*peak)(int64_t);
};
constexpr Family kFamilies[] = {
    {"avx2-f32", Isa::avx2, DType::f32, avx2::multiply_registers},
    {"avx512-f32", Isa::avx512, DType::f32, avx512::multiply_registers},
    {"avx512-bf16", Isa::avx512_bf16, DType::bf16, avx512_bf16::multiply_registers},
    {"amx-bf16", Isa::amx, DType::bf16, amx::multiply_registers}};

struct Case {
  const char* name;
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  bool f32_out;  // weight gradients
};
constexpr Case kCases[] = {{"q_proj fwd", 2048, 896, 896, false, true, false},
                           {"q_proj dX", 2048, 896, 896, false, false, false},
                           {"q_proj dW", 896, 896, 2048, true, false, true},
                           {"up_proj fwd", 2048, 4864, 896, false, true, false},
                           {"up_proj dX", 2048, 896, 4864, false, false, false},
                           {"up_proj dW", 4864, 896, 2048, true, false, true},
                           {"down_proj fwd", 2048, 896, 4864, false, true, false},
                           {"down_proj dX", 2048, 4864, 896, false, false, false},
                           {"down_proj dW", 896, 4864, 2048, true, false, true},
                           {"logits fwd", 512, 151936, 896, false, true, false},
                           {"logits dX", 512, 896, 151936, false, false, false},
                           {"logits dW", 151936, 896, 512, true, false, true},
                           {"lora A fwd", 2048, 16, 896, false, true, false},
                           {"lora B fwd", 2048, 896, 16, false, true, false},
                           {"lora A dX", 2048, 896, 16, false, false, false},
                           {"lora B dX", 2048, 16, 896, false, false, false},
                           {"lora A dW", 16, 896, 2048, true, false, true},
                           {"lora B dW", 896, 16, 2048, true, false, true},
                           // Several products of one x as one (docs/decisions/19-merged-adapters.md).
                           {"3 lora A fwd", 2048, 48, 896, false, true, false},
                           {"3 lora A dW", 48, 896, 2048, true, false, true},
                           {"q, k, v fwd", 2048, 1152, 896, false, true, false},
                           {"gate, up fwd", 2048, 9728, 896, false, true, false}};

// GFLOP/s of the fastest of the runs made in about `seconds`; `work` returns its FLOP.
template <class Work>
double best_rate(double seconds, const Work& work) {
  double best = 0;
  const double end = now() + seconds;
  for (int i = 0; i < 3 || now() < end; ++i) {
    const double start = now();
    const double flop = work();
    best = std::max(best, flop / (now() - start) * 1e-9);
  }
  return best;
}

double peak_rate(const Family& family, int threads) {
  return best_rate(0.1, [&] {
    int64_t flop = 0;
#pragma omp parallel num_threads(threads) reduction(+ : flop)
    flop += family.peak(1'000'000);
    return static_cast<double>(flop);
  });
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<void, Free>;

// Zeros would be as fast; small normal numbers keep sums finite. In large pages, as a run's arena.
Buffer buffer(int64_t count, DType type) {
  constexpr int64_t kPage = int64_t{2} << 20;
  const int64_t bytes = (count * size_of(type) + kPage - 1) / kPage * kPage;
  Buffer b(std::aligned_alloc(kPage, static_cast<size_t>(bytes)));
  madvise(b.get(), static_cast<size_t>(bytes), MADV_HUGEPAGE);
  std::memset(b.get(), 0x3C, static_cast<size_t>(bytes));
  return b;
}

double matmul_rate(const Family& family, const Case& c, int threads) {
  const MatmulShape shape{
      c.m,           c.n, c.k, family.type, family.type, c.f32_out ? DType::f32 : family.type, c.a_transposed,
      c.b_transposed};
  const auto matmul = Matmul::create(shape, family.isa, threads);
  const Buffer a = buffer(c.m * c.k, shape.a);
  const Buffer b = buffer(c.n * c.k, shape.b);
  const Buffer out = buffer(c.m * c.n, shape.c);
  const Buffer scratch = buffer(matmul->scratch_bytes() + 64, DType::u8);
  const Matmul::Args args{.a = a.get(),
                          .b = b.get(),
                          .c = out.get(),
                          .live = c.a_transposed ? c.k : c.m,
                          .scratch = scratch.get()};
  return best_rate(0.1, [&] {
    matmul->run(args);
    return 2.0 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k);
  });
}

void bench(const Family& family, int threads) {
  const double peak = peak_rate(family, threads);
  std::printf("\n%s, %d threads: register peak %.0f GFLOP/s\n", family.name.data(), threads, peak);
  for (const Case& c : kCases) {
    const double rate = matmul_rate(family, c, threads);
    std::printf("  %-14s %6ld x %6ld x %6ld  %7.1f  %3.0f %%\n", c.name, c.m, c.n, c.k, rate,
                100 * rate / peak);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  using namespace plimsoll;
  const int threads = argc > 1 ? std::atoi(argv[1]) : available_cpus();
  start_threads(threads);
  for (const Family& family : kFamilies)
    if (family.isa <= detect_isa() && (argc < 3 || family.name == argv[2])) bench(family, threads);
  return 0;
}
