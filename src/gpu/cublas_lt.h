// Matrix products by NVIDIA's cuBLASLt, which is looked for when a run starts: a program that is not linked
// with it runs on machines that have none.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpu/library_places.h"
#include "gpu/product_library.h"

namespace plimsoll::gpu {

// The libraries that are tried (gpu/library_places.h), 13 before 12. PLIMSOLL_CUBLASLT names a file, or is "none".
std::vector<std::filesystem::path> cublas_lt_places(const ReadVariable& variable);

// A library, or in `reason` why none was opened, beginning with what was tried. One thread uses it, with the
// card chosen that it is for (cudaSetDevice). Throws UsageError where PLIMSOLL_CUBLASLT names one that does
// not load.
struct OpenedLibrary {
  std::unique_ptr<ProductLibrary> library;
  std::string reason;
};
OpenedLibrary open_cublas_lt(const ReadVariable& variable);

}  // namespace plimsoll::gpu
