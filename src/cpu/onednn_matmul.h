// Matmul through oneDNN, for the AMX units that the own kernels do not use.
#pragma once

#include <memory>

#include "cpu/matmul.h"

namespace plimsoll {

// oneDNN's primitive for the shape where it has a fast one, with `own` for calls it cannot serve (fewer live
// rows than the shape, alpha other than 1); `own` alone where oneDNN has none, or only one that allocates
// behind our back.
std::unique_ptr<Matmul> with_onednn(const MatmulShape& shape, std::unique_ptr<Matmul> own);

}  // namespace plimsoll
