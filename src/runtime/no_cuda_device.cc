// In a build without CUDA.
#include "base/error.h"
#include "gpu/cuda_card.h"
#include "runtime/cuda_device.h"

namespace plimsoll {

std::unique_ptr<Device> open_cuda_device(const CardFacts&, const std::string& which, Products) {
  gpu::cuda_facts(which);
  throw InternalError("a card in a build without CUDA");
}

std::string cuda_kernels_text(const gpu::CudaFacts& facts) { return facts.name; }

std::string cuda_code_text(const gpu::CudaFacts& facts) { return facts.name; }

}  // namespace plimsoll
