// AdamW beside a plain copy: GB/s (bytes read and written) of one large weight, and of one that stays in the
// second-level cache, which shows what the arithmetic alone takes. The rates stand for one sitting.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "ops/kernel_test_util.h"
#include "ops/optimizer/adamw_kernels.h"

namespace {

using namespace plimsoll;

constexpr int kThreads = 2;
constexpr int kRounds = 7;
constexpr int64_t kLarge = 128LL << 20;  // elements
constexpr int64_t kSmall = 64LL << 10;

double median_seconds(const std::function<void()>& run) {
  run();
  std::vector<double> seconds;
  for (int i = 0; i < kRounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRounds / 2];
}

double copy_rate() {
  const std::vector<float> from(static_cast<size_t>(kLarge), 1.0F);
  std::vector<float> to(from.size());
  const double seconds = median_seconds([&] {
#pragma omp parallel for schedule(static) num_threads(kThreads)
    for (int64_t i = 0; i < kLarge; ++i) to[static_cast<size_t>(i)] = from[static_cast<size_t>(i)];
  });
  return 2 * sizeof(float) * static_cast<double>(kLarge) / seconds * 1e-9;
}

template <class P, class G, class S>
void measure(const char* name, double copy) {
  const auto size = static_cast<size_t>(kLarge);
  const auto filled = [&]<class T>(T, double x) {
    return std::vector<T>(size, kernel_test::from_double<T>(x));
  };
  std::vector<P> weight = filled(P{}, 0.02);
  std::vector<G> gradient = filled(G{}, 1e-4);
  std::vector<S> m = filled(S{}, 1e-4), v = filled(S{}, 1e-8);
  AdamW<P, G, S> a{.step = {.learning_rate = 1e-4, .weight_decay = 0.01},
                   .weight = weight.data(),
                   .gradient = gradient.data(),
                   .m = m.data(),
                   .v = v.data(),
                   .threads = kThreads};
  constexpr double kBytes = 2 * sizeof(P) + sizeof(G) + 4 * sizeof(S);
  for (const Isa isa : kernel_test::isas_here()) {
    const auto rate = [&](int64_t count, int64_t times) {
      a.count = count;
      const double seconds = median_seconds([&] {
        for (int64_t i = 0; i < times; ++i) PLIMSOLL_RUN_KERNEL(isa, adamw, a);
      });
      return kBytes * static_cast<double>(count * times) / seconds * 1e-9;
    };
    const double large = rate(kLarge, 1);
    std::printf("%-34s %-11s %6.1f GB/s  %3.0f %% of a copy   in cache %6.1f GB/s\n", name,
                std::string(to_string(isa)).c_str(), large, 100 * large / copy,
                rate(kSmall, kLarge / kSmall / 8));
  }
}

}  // namespace

int main() {
  const double copy = copy_rate();
  std::printf("copy %.1f GB/s\n", copy);
  measure<float, float, float>("f32", copy);
  measure<uint16_t, float, float>("bf16, f32 gradients and states", copy);
  measure<uint16_t, uint16_t, uint16_t>("bf16-pure", copy);
  return 0;
}
