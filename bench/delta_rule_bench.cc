// Microseconds per token of the gated delta rule's kernels, with heads as Qwen3.5 has them: forward, backward
// and one generated token. Best of a few runs, of the processor with one thread. Compare with
// bench/delta_rule.py run in the same sitting.
//
//   delta_rule_bench [THREADS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "bench/clock.h"
#include "ops/delta/delta_rule_kernels.h"
#include "ops/kernel_test_util.h"

namespace {

using namespace plimsoll;
using kernel_test::random_values;

double best_seconds(const std::function<void()>& run, int repeats) {
  run();
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const double start = now();
    run();
    best = std::min(best, now() - start);
  }
  return best;
}

// Gates between `lowest` and 0, strengths between 0 and 1.
std::vector<float> gates(int64_t count, float lowest) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = lowest * static_cast<float>(i * 7919 % 1000) / 1000;
  return values;
}

void measure(int32_t length, int64_t key_heads, int64_t heads, int threads) {
  constexpr int64_t kDim = 128;
  const int64_t key_size = length * key_heads * kDim, value_size = length * heads * kDim;
  auto q = random_values<uint16_t>(key_size, 1), k = random_values<uint16_t>(key_size, 2);
  auto v = random_values<uint16_t>(value_size, 3), d_o = random_values<uint16_t>(value_size, 4);
  const auto g = gates(length * heads, -0.5F), beta = gates(length * heads, 1.0F);
  std::vector<uint16_t> o(v.size()), d_q(q.size()), d_k(k.size()), d_v(v.size());
  std::vector<float> d_g(g.size()), d_beta(g.size());
  std::vector<float> state(static_cast<size_t>(heads * kDim * kDim));
  const DeltaProblem problem{.shape = {.tokens = length,
                                       .sequences = 1,
                                       .heads = heads,
                                       .key_heads = key_heads,
                                       .key_dim = kDim,
                                       .value_dim = kDim}};
  std::vector<char> scratch(
      static_cast<size_t>(std::max(delta_forward_scratch_bytes(problem.shape, threads),
                                   delta_backward_scratch_bytes(problem.shape, threads))));
  const int32_t starts[] = {0, length};
  const SequenceTable table{starts, 1};
  const DeltaForward<uint16_t> forward{problem,  table,       q.data(), k.data(),       v.data(),
                                       g.data(), beta.data(), o.data(), scratch.data(), threads};
  const DeltaBackward<uint16_t> backward{problem,    table,       q.data(),      k.data(),       v.data(),
                                         g.data(),   beta.data(), d_o.data(),    d_q.data(),     d_k.data(),
                                         d_v.data(), d_g.data(),  d_beta.data(), scratch.data(), threads};
  const DeltaCached<uint16_t> cached{problem,  1,           false,    q.data(),     k.data(),       v.data(),
                                     g.data(), beta.data(), o.data(), state.data(), scratch.data(), threads};
  for (const Isa isa : kernel_test::isas_here()) {
    const int repeats = length > 4000 ? 3 : 8;
    const auto per_token = [&](const auto& run) { return 1e6 * best_seconds(run, repeats) / length; };
    std::printf("S %5d, heads %ld/%ld, %-11s forward %6.2f  backward %6.2f us/token  one token %6.1f us\n",
                length, key_heads, heads, std::string(to_string(isa)).c_str(),
                per_token([&] { PLIMSOLL_RUN_KERNEL(isa, delta_forward, forward); }),
                per_token([&] { PLIMSOLL_RUN_KERNEL(isa, delta_backward, backward); }),
                1e6 * best_seconds([&] { PLIMSOLL_RUN_KERNEL(isa, delta_cached, cached); }, 20));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  omp_set_num_threads(threads);
  for (const int32_t length : {512, 1024, 4096, 16384}) measure(length, 4, 8, threads);
}
