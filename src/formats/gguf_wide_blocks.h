// GGUF's blocks of 256 values ("K-quants"), one block at a time. Each type has parts of a row with scales of
// their own, which are small numbers times one f16 of the block.
#pragma once

#include <cstddef>

namespace plimsoll {

void to_q4_k(const float* values, std::byte* to);
void to_q5_k(const float* values, std::byte* to);
void to_q6_k(const float* values, std::byte* to);
void from_q4_k(const std::byte* stored, float* to);
void from_q5_k(const std::byte* stored, float* to);
void from_q6_k(const std::byte* stored, float* to);

}  // namespace plimsoll
