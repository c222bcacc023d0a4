// Kinds of GGUF files, by the type of most of their matrices, and which type each matrix of such a file has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_types.h"

namespace plimsoll {

// The numbers are llama.cpp's (general.file_type).
enum class GgufKind : uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q8_0 = 7, q4_k_m = 15, q5_k_m = 17, bf16 = 32 };

std::string_view to_string(GgufKind kind);
// "f32", "f16", "bf16", "q8_0", "q5_k_m", "q4_k_m", "q4_0", as the command line names them.
std::vector<std::string> gguf_kind_names();
std::optional<GgufKind> gguf_kind_of(std::string_view name);
// Returns true if matrices are quantised.
bool is_quantised(GgufKind kind);

// A matrix of a file.
struct GgufMatrix {
  std::string_view name;  // as GGUF has it
  int64_t layer = -1, layers = 0;
  int64_t width = 0;     // of a row
  bool is_head = false;  // the one that logits are products with
};
// As llama.cpp chooses them: heads, and in some layers attn_v and ffn_down, have more bits. Rows that are no
// whole blocks of that type have q8_0, or f16.
GgufType gguf_type_for(GgufKind kind, const GgufMatrix& matrix);

}  // namespace plimsoll
