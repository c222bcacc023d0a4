#include "cpu/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

struct Cpuid {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Cpuid cpuid(unsigned leaf, unsigned subleaf) {
  Cpuid r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);  // leaves zeros for a leaf that does not exist
  return r;
}

bool has(unsigned word, unsigned mask) { return (word & mask) == mask; }

// Register states that the operating system saves (XCR0).
unsigned saved_states() {
  if (!has(cpuid(1, 0).c, bit_OSXSAVE)) return 0;
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// Linux gives the 8 KiB tile state only to processes that ask (arch/x86/include/uapi/asm/prctl.h).
bool request_amx() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

// The best instruction set that the processor and the operating system have.
Isa machine_isa() {
  constexpr unsigned kYmm = 0x6;        // SSE and AVX state
  constexpr unsigned kZmm = 0xE6;       // and the three AVX-512 states
  constexpr unsigned kTiles = 0x60000;  // TILECFG and TILEDATA
  const unsigned states = saved_states();
  const unsigned basic = cpuid(1, 0).c;
  const Cpuid seven = cpuid(7, 0);
  if (!has(states, kYmm) || !has(basic, bit_FMA | bit_F16C) || !has(seven.b, bit_AVX2 | bit_BMI2))
    throw UsageError(
        "this processor (or its operating system) lacks AVX2, FMA or F16C, which plimsoll needs");
  const unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD;
  if (!has(states, kZmm) || !has(seven.b, avx512)) return Isa::avx2;
  constexpr unsigned kAvx512Bf16 = 1U << 5;
  if (!has(cpuid(7, 1).a, kAvx512Bf16)) return Isa::avx512;
  constexpr unsigned kAmxBf16AndTile = (1U << 22) | (1U << 24);
  if (!has(states, kTiles) || !has(seven.d, kAmxBf16AndTile) || !request_amx()) return Isa::avx512_bf16;
  return Isa::amx;
}

}  // namespace

Isa detect_isa() {
  constexpr const char* kCap = "PLIMSOLL_MAX_ISA";
  const Isa isa = machine_isa();
  const char* cap = std::getenv(kCap);
  return cap == nullptr ? isa : std::min(isa, parse_isa(cap, kCap));
}

Isa effective_isa(std::optional<Isa> cap) {
  const Isa found = detect_isa();
  const Isa isa = cap.value_or(found);
  if (isa > found)
    throw UsageError(formatted("the instruction set {} was asked for, but this machine has {} at most",
                               to_string(isa), to_string(found)));
  return isa;
}

}  // namespace plimsoll
