// In a build without CUDA.
#include "base/error.h"
#include "gpu/cuda_card.h"

namespace plimsoll::gpu {
namespace {

[[noreturn]] void refuse() {
  throw UsageError(
      "device: cuda: this program was built without CUDA; build it with nvcc 12.8 or later, or choose device: cpu (--device cpu)");
}

}  // namespace

bool built_with_cuda() { return false; }
CudaFacts cuda_facts(const std::string&) { refuse(); }
std::unique_ptr<Card> open_cuda_card(const std::string&) { refuse(); }

}  // namespace plimsoll::gpu
