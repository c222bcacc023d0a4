#include "tools/gguf_kinds.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace plimsoll {
namespace {

struct KindRow {
  GgufKind kind;
  std::string_view name;
  GgufType usual;  // of matrices
  GgufType more;   // of those that have more bits
};
constexpr std::array kKinds = {KindRow{GgufKind::f32, "f32", GgufType::f32, GgufType::f32},
                               KindRow{GgufKind::bf16, "bf16", GgufType::bf16, GgufType::bf16},
                               KindRow{GgufKind::f16, "f16", GgufType::f16, GgufType::f16},
                               KindRow{GgufKind::q8_0, "q8_0", GgufType::q8_0, GgufType::q8_0},
                               KindRow{GgufKind::q5_k_m, "q5_k_m", GgufType::q5_k, GgufType::q6_k},
                               KindRow{GgufKind::q4_k_m, "q4_k_m", GgufType::q4_k, GgufType::q6_k},
                               KindRow{GgufKind::q4_0, "q4_0", GgufType::q4_0, GgufType::q6_k}};

const KindRow& row_of(GgufKind kind) {
  const auto* found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const KindRow& row) { return row.kind == kind; });
  check_internal(found != kKinds.end(), "an unknown kind of GGUF");
  return *found;
}

// The first and the last eighth of the layers, and every third one between.
bool has_more_bits(int64_t layer, int64_t layers) {
  const int64_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

}  // namespace

std::string_view to_string(GgufKind kind) { return row_of(kind).name; }

std::vector<std::string> gguf_kind_names() {
  std::vector<std::string> names;
  for (const KindRow& row : kKinds) names.emplace_back(row.name);
  return names;
}

std::optional<GgufKind> gguf_kind_of(std::string_view name) {
  const auto* found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const KindRow& row) { return row.name == name; });
  return found == kKinds.end() ? std::nullopt : std::optional(found->kind);
}

bool is_quantised(GgufKind kind) { return gguf_block(row_of(kind).usual).values > 1; }

GgufType gguf_type_for(GgufKind kind, const GgufMatrix& matrix) {
  const KindRow& row = row_of(kind);
  const bool deep = kind == GgufKind::q4_k_m || kind == GgufKind::q5_k_m;
  const bool sensitive = matrix.name.ends_with(".attn_v.weight") || matrix.name.ends_with(".ffn_down.weight");
  const bool more = matrix.is_head || (deep && sensitive && has_more_bits(matrix.layer, matrix.layers));
  const GgufType wanted = more ? row.more : row.usual;
  if (matrix.width % gguf_block(wanted).values == 0) return wanted;
  return matrix.width % kGgufBlock == 0 ? GgufType::q8_0 : GgufType::f16;
}

}  // namespace plimsoll
