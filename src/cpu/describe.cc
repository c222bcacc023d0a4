#include "cpu/describe.h"

#include "cpu/matmul.h"

namespace plimsoll {
namespace {

// Measured on single cores of common servers, per thread: what the matmul kernels reach in a step, not their
// peak.
double matmul_rate(Isa isa, DType dtype) {
  const bool bf16 = dtype == DType::bf16;
  switch (isa) {
    case Isa::avx2:
      return 4.5e10;
    case Isa::avx512:
      return 8.0e10;
    case Isa::avx512_bf16:
      return bf16 ? 1.5e11 : 8.0e10;
    case Isa::amx:
      return bf16 ? 8.0e11 : 1.2e11;
  }
  return 4.5e10;
}

// Vector rate of machines whose products run in tiles: measured with AMX, one thread
// (bench/results/matmul-amx-2cores.json).
double vector_rate(Isa isa) { return isa == Isa::amx ? 1.1e11 : matmul_rate(isa, DType::bf16); }

constexpr double kBandwidthPerThread = 1.2e10;
constexpr double kBandwidthOfSocket = 1.0e11;

}  // namespace

DeviceDescription describe_cpu(Isa isa, int threads) {
  DeviceDescription device;
  device.kind = "cpu";
  device.isa = isa;
  device.threads = threads;
  device.rates.matmul_f32 = matmul_rate(isa, DType::f32) * threads;
  device.rates.matmul_bf16 = matmul_rate(isa, DType::bf16) * threads;
  device.rates.vector_bf16 = vector_rate(isa) * threads;
  device.rates.bandwidth =
      kBandwidthPerThread * threads < kBandwidthOfSocket ? kBandwidthPerThread * threads : kBandwidthOfSocket;
  device.matmul_scratch_bytes = [=](const MatmulShape& shape) {
    return matmul_scratch_bytes(shape, isa, threads);
  };
  return device;
}

}  // namespace plimsoll
