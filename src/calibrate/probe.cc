#include "calibrate/probe.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>

#include "base/format.h"
#include "base/units.h"
#include "calibrate/measure.h"
#include "cpu/matmul.h"
#include "ops/parallel_memory.h"
#include "runtime/arena.h"

namespace plimsoll {
namespace {

constexpr double kProductSeconds = 0.12;
constexpr int64_t kHalf = 64 * kMiB;  // of a copy: beyond most caches, and small compared with any machine's
                                      // memory

// A linear layer's product of a common size, its weight in row-major order as checkpoints have it.
double product_rate(const CpuSettings& settings, DType dtype) {
  const MatmulShape shape{
      .m = 512, .n = 1024, .k = 1024, .a = dtype, .b = dtype, .c = dtype, .b_transposed = true};
  const auto matmul = Matmul::create(shape, settings.isa, settings.threads);
  const auto fresh = [&](int64_t bytes) { return std::make_unique<Arena>(bytes, settings.threads); };
  const auto a = fresh(shape.m * shape.k * size_of(dtype));
  const auto b = fresh(shape.n * shape.k * size_of(dtype));
  const auto c = fresh(shape.m * shape.n * size_of(dtype));
  const auto scratch = fresh(std::max<int64_t>(matmul->scratch_bytes(), 64));
  const Matmul::Args args{
      .a = a->data(), .b = b->data(), .c = c->data(), .live = shape.m, .scratch = scratch->data()};
  const auto run = [&] { matmul->run(args); };
  run();
  return 2.0 * static_cast<double>(shape.m * shape.n * shape.k) / least_seconds(3, kProductSeconds, run);
}

// Seconds that all threads of the process ran, and waited for a CPU.
std::pair<double, double> ran_and_waited() {
  double ran = 0;
  double waited = 0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(task.path() / "schedstat");
    double nanoseconds = 0;
    double in_queue = 0;
    if (!(file >> nanoseconds >> in_queue)) continue;
    ran += 1e-9 * nanoseconds;
    waited += 1e-9 * in_queue;
  }
  return {ran, waited};
}

}  // namespace

double vector_rate(const CpuSettings& settings, double matmul_bf16) {
  if (settings.isa != Isa::amx) return matmul_bf16;
  return product_rate({.isa = Isa::avx512_bf16, .threads = settings.threads}, DType::bf16);
}

DeviceRates probe(const CpuSettings& settings, const DeviceRates& shipped) {
  DeviceRates rates = shipped;
  const auto bytes = static_cast<double>(kHalf);
  const int threads = settings.threads;
  std::unique_ptr<Arena> arena;
  rates.page_touch = 2 * bytes / seconds_of([&] { arena = std::make_unique<Arena>(2 * kHalf, threads); });
  std::byte* const from = arena->data();
  std::byte* const to = from + kHalf;
  rates.bandwidth = 2 * bytes / least_seconds(3, 0, [&] { parallel_copy(to, from, kHalf, threads); });
  rates.host_copy = bytes / least_seconds(2, 0, [&] { std::memcpy(to, from, static_cast<size_t>(kHalf)); });
  rates.matmul_f32 = product_rate(settings, DType::f32);
  rates.matmul_bf16 = product_rate(settings, DType::bf16);
  rates.vector_bf16 = vector_rate(settings, rates.matmul_bf16);
  return rates;
}

TimeLost::TimeLost() { std::tie(ran_, waited_) = ran_and_waited(); }

double TimeLost::share() const {
  const auto [ran, waited] = ran_and_waited();
  const double lost = waited - waited_;
  const double all = ran - ran_ + lost;
  return all > 0 ? lost / all : 0;
}

std::string crowded_note(double share, int threads) {
  constexpr double kCrowded = 0.5;  // then two threads were two to three times slower than one
  if (threads < 2 || share < kCrowded) return "";
  return formatted(
      "other programs took {} % of the time of the {} threads, which wait for each other: --threads 1 "
      "is likely to be faster (--resume continues the run)",
      std::llround(100 * share), threads);
}

}  // namespace plimsoll
