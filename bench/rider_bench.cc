// Milliseconds of a product with a fused adapter beside those of the product and of the fused adapter's own behind it: what
// an adapter of rank 16 adds to linear layers.
//   rider_bench [THREADS [ROUNDS [TYPE]]]      TYPE: f32, bf16, f16 (default: all)
// The two take turns; the best of the rounds is shown: other load on the machine only ever slows one down.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "bench/clock.h"
#include "cpu/isa.h"
#include "cpu/matmul.h"
#include "cpu/threads.h"

namespace plimsoll {
namespace {

struct Buffers {
  explicit Buffers(const MatmulShape& s, int64_t scratch_bytes)
      : a(s.m * s.k),
        b(s.k * s.n),
        c(s.m * s.n),
        t(s.m * s.rider),
        u(s.rider * s.n),
        scratch(scratch_bytes) {}
  struct Memory {
    explicit Memory(int64_t elements)
        : size(static_cast<size_t>(elements * 4 + 127) / 64 * 64), at(std::aligned_alloc(64, size)) {
      std::fill_n(static_cast<char*>(at), size, 0);
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() { std::free(at); }
    size_t size;
    void* at;
  } a, b, c, t, u, scratch;
};

double milliseconds(const Matmul& matmul, const MatmulShape& s, const Buffers& of) {
  const double start = now();
  matmul.run({.a = of.a.at,
              .b = of.b.at,
              .c = of.c.at,
              .live = s.m,
              .adapter_a = of.t.at,
              .adapter_b = of.u.at,
              .adapter_alpha = 2.0F,
              .scratch = of.scratch.at});
  return (now() - start) * 1e3;
}

void compare(const MatmulShape& s, int threads, int rounds) {
  const Isa isa = detect_isa();
  MatmulShape alone = s;
  alone.rider = 0;
  const auto with = Matmul::create(s, isa, threads), apart = create_adapter_apart(s, isa, threads),
             without = Matmul::create(alone, isa, threads);
  const Buffers buffers(s, std::max(with->scratch_bytes(), apart->scratch_bytes()));
  double ms[3] = {INFINITY, INFINITY, INFINITY};
  for (int round = 0; round < rounds; ++round) {
    int at = 0;
    for (const Matmul* matmul : {without.get(), apart.get(), with.get()}) {
      ms[at] = std::min(ms[at], milliseconds(*matmul, s, buffers));
      ++at;
    }
  }
  std::printf("%-5s %-4s %5ld x %5ld x %5ld  product %8.3f  fused adapter apart +%6.3f  riding +%6.3f ms\n",
              std::string(to_string(s.a)).c_str(), s.b_transposed ? "y" : "d_x", static_cast<long>(s.m),
              static_cast<long>(s.n), static_cast<long>(s.k), ms[0], ms[1] - ms[0], ms[2] - ms[0]);
}

}  // namespace
}  // namespace plimsoll

int main(int count, char** arguments) {
  using namespace plimsoll;
  const int threads = count > 1 ? std::atoi(arguments[1]) : available_cpus();
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 31;
  const std::string_view only = count > 3 ? arguments[3] : "";
  start_threads(threads);
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    if (!only.empty() && to_string(type) != only) continue;
    for (const bool turned : {true, false})
      for (const auto& [n, k] :
           {std::pair<int64_t, int64_t>{1024, 1024}, {2816, 1024}, {1024, 2816}, {256, 1024}})
        compare({512, n, k, type, type, type, false, turned, 16}, threads, rounds);
  }
}
