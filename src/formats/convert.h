// Conversion between floating-point element types, portable and exact to the bit: narrowing rounds to
// nearest, ties to even; infinities stay; a NaN stays a (quiet) NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/bf16.h"
#include "tensor/f16.h"
#include "tensor/tensor.h"

namespace plimsoll {

// Returns true if convert() has this pair: equal types, or two of f32, bf16, f16.
bool can_convert(DType from, DType to);

// Converts from.size() / size_of(from_dtype) elements. Spans must not overlap, need no alignment, and must
// hold the same number of elements (InternalError otherwise). Allocates nothing.
void convert(std::span<const std::byte> from, DType from_dtype, std::span<std::byte> to, DType to_dtype);

}  // namespace plimsoll
