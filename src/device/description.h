// What planning knows of a device: facts and rates, no backend. Rules ask it for scratch and cost.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "device/rates.h"
#include "tensor/tensor.h"

namespace plimsoll {

// Kernel families of an x86-64 CPU, each including the ones before it. --max-isa caps them.
enum class Isa : uint8_t { avx2, avx512, avx512_bf16, amx };
std::string_view to_string(Isa isa);
// Reads "avx2", "avx512", "avx512-bf16", "amx"; throws UsageError naming `what` otherwise.
Isa parse_isa(std::string_view text, std::string_view what);

struct DeviceDescription {
  std::string kind = "reference";  // "cpu", "reference"
  Isa isa = Isa::avx2;
  int threads = 1;
  bool reaches_host = true;  // ops compute on host memory: nothing has to be copied from and to there
  DeviceRates rates;
  // Scratch bytes the backend's matmul wants for a shape, known before anything runs. The reference
  // description needs none, so that golden dumps do not depend on a machine.
  std::function<int64_t(const MatmulShape&)> matmul_scratch_bytes = [](const MatmulShape&) {
    return int64_t{0};
  };
};

// The fixed description that golden dumps and rule tests use.
DeviceDescription reference_description();

}  // namespace plimsoll
