#include "runtime/cuda_device.h"

#include "base/error.h"
#include "gpu/cuda_card.h"
#include "ops/gpu_kernel.h"
#include "runtime/gpu_device.h"

namespace plimsoll {
namespace {

class CudaDevice : public GpuDevice {
 public:
  CudaDevice(std::unique_ptr<gpu::Card> card, const CardFacts& facts)
      : GpuDevice(std::move(card)), facts_(facts) {}

 protected:
  BoundCall bind_kernels(const Graph& graph, const Op& op, const AddressOf& address,
                         gpu::Stream& stream) override {
    return bind_gpu(GpuBinding(graph, op, facts_, stream, address));
  }

 private:
  CardFacts facts_;
};

}  // namespace

std::unique_ptr<Device> open_cuda_device(const CardFacts& planned, const std::string& which) {
  const gpu::CudaFacts facts = gpu::cuda_facts(which);
  if (facts.card.compute_capability < planned.compute_capability)
    throw UsageError("device: cuda: the plan is for a card of compute capability " +
                     std::to_string(planned.compute_capability / 10) + "." +
                     std::to_string(planned.compute_capability % 10) + ", and the " + facts.name +
                     " here has less; leave memory.gpu out (--set memory.gpu=null)");
  return std::make_unique<CudaDevice>(gpu::open_cuda_card(which), planned);
}

std::string cuda_kernels_text(const gpu::CudaFacts& facts) {
  return facts.name + ", CUDA " + std::to_string(facts.driver / 1000) + "." +
         std::to_string(facts.driver % 1000 / 10) + ", kernels " + std::to_string(kGpuKernelGeneration);
}

std::string cuda_code_text() { return "kernels " + std::to_string(kGpuKernelGeneration); }

}  // namespace plimsoll
