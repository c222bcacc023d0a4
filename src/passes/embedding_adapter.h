// The adapter of an embedding: h += scale * B A[id]. A is [V, r] here, a row a token, and its transpose in
// PEFT's folders; B is [H, r].
#pragma once

namespace plimsoll {

inline constexpr const char* kEmbeddingA = ".lora_embedding_A";
inline constexpr const char* kEmbeddingB = ".lora_embedding_B";

}  // namespace plimsoll
