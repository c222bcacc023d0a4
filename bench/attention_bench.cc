// Milliseconds per layer of the attention kernels: forward, backward and one generated token. Best and median
// of a few runs. Compare with bench/attention_sdpa.py run in the same sitting.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <utility>

#include "ops/attention/attention_kernels.h"
#include "ops/kernel_test_util.h"

namespace {

using namespace plimsoll;
using kernel_test::random_values;

constexpr int kThreads = 2;

std::pair<double, double> best_and_median_ms(const std::function<void()>& run, int repeats) {
  run();
  std::vector<double> ms;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(ms.begin(), ms.end());
  return {ms.front(), ms[ms.size() / 2]};
}

void report(const char* what, Isa isa, std::pair<double, double> ms, double gflop) {
  std::printf("  %-8s %-11s best %7.2f  median %7.2f ms  %5.0f GFLOP/s\n", what,
              std::string(to_string(isa)).c_str(), ms.first, ms.second, gflop / ms.first * 1e3);
}

void measure(int32_t length, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  const int64_t q_size = length * heads * head_dim;
  const int64_t kv_size = length * kv_heads * head_dim;
  auto q = random_values<uint16_t>(q_size, 1);
  auto k = random_values<uint16_t>(kv_size, 2);
  auto v = random_values<uint16_t>(kv_size, 3);
  auto d_o = random_values<uint16_t>(q_size, 4);
  std::vector<uint16_t> o(static_cast<size_t>(q_size)), d_q(o.size());
  std::vector<uint16_t> d_k(static_cast<size_t>(kv_size)), d_v(d_k.size());
  std::vector<float> lse(static_cast<size_t>(length * heads));
  const AttentionShape shape{.length = length, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
  const AttentionProblem problem{
      .shape = shape, .tokens = length, .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
  std::vector<char> scratch(static_cast<size_t>(std::max(attention_forward_scratch_bytes(shape, kThreads),
                                                         attention_backward_scratch_bytes(shape, kThreads))));
  const int32_t starts[] = {0, length};
  const SequenceTable table{starts, 1};
  const AttentionForward<uint16_t> forward{problem,  table,      q.data(),       k.data(), v.data(),
                                           o.data(), lse.data(), scratch.data(), kThreads};
  const AttentionBackward<uint16_t> backward{problem,    table,          q.data(),   k.data(),   v.data(),
                                             o.data(),   lse.data(),     d_o.data(), d_q.data(), d_k.data(),
                                             d_v.data(), scratch.data(), kThreads};
  AttentionProblem token = problem;
  token.tokens = 1;
  const AttentionCached<uint16_t> cached{token,  q.data(),   k.data(),       v.data(),
                                         length, d_q.data(), scratch.data(), kThreads};
  // Two products over the half of the scores that is not masked.
  const double gflop = 2e-9 * static_cast<double>(length) * static_cast<double>(q_size);
  std::printf("S %d, heads %ld/%ld, D %ld, bf16\n", length, heads, kv_heads, head_dim);
  const auto isas = kernel_test::isas_here();
  for (const Isa isa : isas) {
    if (length > 4000 && isa != isas.back()) continue;  // they would take minutes
    const int repeats = length > 4000 ? 2 : length > 1000 ? 5 : 15;
    report("forward", isa,
           best_and_median_ms([&] { PLIMSOLL_RUN_KERNEL(isa, attention_forward, forward); }, repeats), gflop);
    report("backward", isa,
           best_and_median_ms([&] { PLIMSOLL_RUN_KERNEL(isa, attention_backward, backward); }, repeats),
           2.5 * gflop);
    report("token", isa, best_and_median_ms([&] { PLIMSOLL_RUN_KERNEL(isa, attention_cached, cached); }, 15),
           4e-9 * static_cast<double>(q_size));
  }
}

// A layer of T5's encoder: 12 heads of 64, all pairs, by what it adds to the scores.
void measure_t5(int32_t length, const char* what, int64_t buckets, double dropout) {
  constexpr int64_t kHeads = 12;
  constexpr int64_t kDim = 64;
  const int64_t size = length * kHeads * kDim;
  auto q = random_values<uint16_t>(size, 1, 0.1);
  auto k = random_values<uint16_t>(size, 2);
  auto v = random_values<uint16_t>(size, 3);
  auto d_o = random_values<uint16_t>(size, 4);
  auto biases = random_values<uint16_t>(buckets * kHeads, 5);
  std::vector<uint16_t> o(static_cast<size_t>(size)), d_q(o.size()), d_k(o.size()), d_v(o.size());
  std::vector<float> lse(static_cast<size_t>(length * kHeads)), d_bias(static_cast<size_t>(buckets * kHeads));
  std::vector<int32_t> positions(static_cast<size_t>(length)), samples(positions.size());
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
  const AttentionShape shape{.length = length,
                             .heads = kHeads,
                             .kv_heads = kHeads,
                             .head_dim = kDim,
                             .causal = false,
                             .buckets = buckets,
                             .max_distance = 128,
                             .sequences = 1,
                             .bias_trains = buckets > 0};
  const AttentionProblem problem{
      .shape = shape,
      .tokens = length,
      .dropout = {.probability = dropout, .samples = samples.data(), .positions = positions.data()}};
  std::vector<char> scratch(static_cast<size_t>(std::max(attention_forward_scratch_bytes(shape, kThreads),
                                                         attention_backward_scratch_bytes(shape, kThreads))));
  const int32_t starts[] = {0, length};
  const SequenceTable table{starts, 1};
  const uint16_t* const rows = buckets > 0 ? biases.data() : nullptr;
  const AttentionForward<uint16_t> forward{problem,    table,          q.data(), k.data(), v.data(), o.data(),
                                           lse.data(), scratch.data(), kThreads, {},       rows};
  const AttentionBackward<uint16_t> backward{
      problem,    table,      q.data(),   k.data(),
      v.data(),   o.data(),   lse.data(), d_o.data(),
      d_q.data(), d_k.data(), d_v.data(), scratch.data(),
      kThreads,   {},         rows,       buckets > 0 ? d_bias.data() : nullptr};
  const double gflop = 4e-9 * static_cast<double>(length) * static_cast<double>(size);
  std::printf("S %d, heads 12/12, D 64, bf16, both sides%s\n", length, what);
  for (const Isa isa : kernel_test::isas_here()) {
    report("forward", isa,
           best_and_median_ms([&] { PLIMSOLL_RUN_KERNEL(isa, attention_forward, forward); }, 15), gflop);
    report("backward", isa,
           best_and_median_ms([&] { PLIMSOLL_RUN_KERNEL(isa, attention_backward, backward); }, 15),
           2.5 * gflop);
  }
}

}  // namespace

int main() {
  for (const int32_t length : {256, 512}) {
    measure_t5(length, "", 0, 0);
    measure_t5(length, ", bias", 32, 0);
    measure_t5(length, ", bias and dropout", 32, 0.1);
  }
  for (const int32_t length : {512, 2048, 8192}) {
    measure(length, 14, 2, 64);
    measure(length, 16, 8, 128);
  }
  return 0;
}
