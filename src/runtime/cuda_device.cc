#include "runtime/cuda_device.h"

#include <cstdlib>

#include "base/error.h"
#include "base/format.h"
#include "gpu/cublas_lt.h"
#include "gpu/cuda_card.h"
#include "gpu/launch_limits.h"
#include "ops/gpu_kernel.h"
#include "ops/optimizer/gpu_rank_sum.h"
#include "runtime/gpu_device.h"

namespace plimsoll {
namespace {

class CudaDevice : public GpuDevice {
 public:
  CudaDevice(std::unique_ptr<gpu::Card> card, const CardFacts& facts, Products products, int capability)
      : GpuDevice(std::move(card)), facts_(facts), found_(find_library(products)), capability_(capability) {}

  // Queues may still hold the library's products.
  ~CudaDevice() override { abandon(); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  [[nodiscard]] std::string loading_note() const override {
    return gpu::compile_note(PLIMSOLL_CODE_FOR, capability_);
  }
  [[nodiscard]] std::string products() const override {
    if (found_.library == nullptr) return formatted("own kernels ({})", found_.reason);
    const gpu::ProductUse& use = found_.library->use;
    std::string text = found_.library->name();
    if (use.refused > 0) text += formatted(", {} of {} own kernels", use.refused, use.requested);
    if (use.refused_runs > 0) text += formatted(", refused {} times", use.refused_runs);
    return text;
  }

 protected:
  BoundCall bind_kernels(const Graph& graph, const Op& op, const AddressOf& address, const Sent& sent,
                         gpu::Stream& stream) override {
    return bind_gpu(
        GpuBinding(graph, op, facts_, stream, address, {found_.library.get(), sent.of, sent.facts}));
  }

  void launch_sums(std::span<const std::byte> pieces, int64_t ranks, DType dtype, std::byte* sums,
                   gpu::Stream& stream) override {
    launch_rank_sum(stream, pieces, ranks, dtype, sums);
  }

 private:
  // With the card chosen: opening it has done that.
  static gpu::OpenedLibrary find_library(Products products) {
    if (products == Products::own) return {nullptr, "asked for"};
    return gpu::open_cublas_lt(std::getenv);
  }

  CardFacts facts_;
  gpu::OpenedLibrary found_;
  int capability_;  // of this machine's card
};

}  // namespace

std::unique_ptr<Device> open_cuda_device(const CardFacts& planned, const std::string& which,
                                         Products products) {
  const gpu::CudaFacts facts = gpu::cuda_facts(which);
  if (facts.card.compute_capability < planned.compute_capability)
    throw UsageError(formatted(
        "device: cuda: the plan is for a card of compute capability {}.{}, and the {} here has less; "
        "leave memory.gpu out (--set memory.gpu=null)",
        planned.compute_capability / 10, planned.compute_capability % 10, facts.name));
  return std::make_unique<CudaDevice>(gpu::open_cuda_card(which), planned, products,
                                      facts.card.compute_capability);
}

std::string cuda_kernels_text(const gpu::CudaFacts& facts) {
  return formatted("{}, CUDA {}.{}, {}", facts.name, facts.driver / 1000, facts.driver % 1000 / 10,
                   cuda_code_text(facts));
}

std::string cuda_code_text(const gpu::CudaFacts& facts) {
  return formatted("kernels {}{}", kGpuKernelGeneration, facts.library.empty() ? "" : ", " + facts.library);
}

}  // namespace plimsoll
