// A device as planning knows it: facts and rates, no backend. Rules ask it for scratch and cost.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/rates.h"
#include "tensor/tensor.h"

namespace plimsoll {

// Kernel families of an x86-64 CPU, each including the ones before it. --max-isa caps them.
enum class Isa : uint8_t { avx2, avx512, avx512_bf16, amx };
std::string_view to_string(Isa isa);
// Reads "avx2", "avx512", "avx512-bf16", "amx"; throws UsageError naming `what` otherwise.
Isa parse_isa(std::string_view text, std::string_view what);

// The kernels that run: their workspaces differ.
enum class Backend : uint8_t { cpu, gpu };

// The facts that kernels choose their grids by. The emulated card is a small one of compute capability 8.6.
struct CardFacts {
  int compute_capability = 86;  // times 10
  int multiprocessors = 4;
  int64_t shared_bytes_per_block = 99 * 1024;
};

// Memory that a process has on the card in addition to its arena. It is not known exactly without the card:
// `bytes` is what is expected, and the true value is within `uncertain` of that.
struct OutsidePart {
  std::string name;
  int64_t bytes = 0, uncertain = 0;
  [[nodiscard]] int64_t counted() const { return bytes + uncertain; }
};

// The memory that a node of a captured graph takes on a GPU, likewise: a guess until a run has measured it.
struct GraphNodeBytes {
  int64_t bytes = 32 * 1024, uncertain = 32 * 1024;
  bool measured = false;
};

struct DeviceDescription {
  std::string kind = "reference";  // "cpu", "card", "emulated", "reference"
  Backend backend = Backend::cpu;
  CardFacts card;                         // of a GPU
  std::string card_name = {};             // of one of the catalogue (device/catalogue.h)
  std::vector<OutsidePart> outside = {};  // likewise
  GraphNodeBytes graph_node;
  double launch_seconds = 0;      // of the host, to give a card a call; 0: not counted
  bool library_products = false;  // a library may compute products
  Isa isa = Isa::avx2;
  int threads = 1;
  bool reaches_cards = false;  // of its kind in the same machine, without memory of the host between them
  bool reaches_host = true;    // ops compute on host memory: nothing has to be copied from and to there
  DeviceRates rates;
  // Scratch bytes the backend's matmul wants for a shape, known before anything runs. The reference
  // description needs none, so that golden dumps do not depend on a machine.
  std::function<int64_t(const MatmulShape&)> matmul_scratch_bytes = [](const MatmulShape&) {
    return int64_t{0};
  };
};

// The bytes that a plan counts for it: as much as it may be.
int64_t outside_bytes(const DeviceDescription& device);

// The emulated card: it computes in the memory and at the rates of the machine that emulates it, as far as
// planning knows.
DeviceDescription as_emulated(DeviceDescription machine);

// The fixed description that golden dumps and rule tests use.
DeviceDescription reference_description();

}  // namespace plimsoll
