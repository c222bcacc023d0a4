#include "device/description.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

constexpr std::array<std::pair<Isa, std::string_view>, 4> kIsaNames = {
    {{Isa::avx2, "avx2"}, {Isa::avx512, "avx512"}, {Isa::avx512_bf16, "avx512-bf16"}, {Isa::amx, "amx"}}};

}  // namespace

std::string_view to_string(Isa isa) {
  for (const auto& [value, name] : kIsaNames)
    if (value == isa) return name;
  throw InternalError("to_string: no such instruction set");
}

Isa parse_isa(std::string_view text, std::string_view what) {
  for (const auto& [value, name] : kIsaNames)
    if (name == text) return value;
  throw UsageError(
      formatted("{}: '{}' is not an instruction set; use avx2, avx512, avx512-bf16 or amx", what, text));
}

int64_t outside_bytes(const DeviceDescription& device) {
  int64_t bytes = 0;
  for (const OutsidePart& part : device.outside) bytes += part.counted();
  return bytes;
}

DeviceDescription as_emulated(DeviceDescription machine) {
  machine.kind = "emulated";
  machine.backend = Backend::gpu;
  machine.reaches_host = false;
  machine.matmul_scratch_bytes = [](const MatmulShape&) { return int64_t{0}; };
  return machine;
}

DeviceDescription reference_description() { return {}; }

}  // namespace plimsoll
