// A CUDA GPU as a device: kernels of src/ops/*_gpu.cu, and a library's products, where there is one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/description.h"
#include "gpu/cuda_card.h"
#include "runtime/device.h"

namespace plimsoll {

// The source of matrix products: a library that is looked for, or kernels of our own.
enum class Products : uint8_t { by_library, own };

// `which`: as gpu::cuda_facts() reads it. `planned`: what grids and workspaces were planned by. Throws
// UsageError where there is no such card, or one that lacks what was planned.
std::unique_ptr<Device> open_cuda_device(const CardFacts& planned, const std::string& which = "",
                                         Products products = Products::by_library);

// GPU, driver and kernels of a run in words: its bits are promised only where these are the same.
std::string cuda_kernels_text(const gpu::CudaFacts& facts);
// The code that a process holds on the GPU: another build's takes other bytes.
std::string cuda_code_text(const gpu::CudaFacts& facts);

}  // namespace plimsoll
