// The kinds of ops, from ops/ops.def.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll {

enum class OpKind : uint8_t {
#define OP(name, ...) name,
#include "ops/ops.def"
#undef OP
};

inline constexpr int kNumOpKinds = 0
#define OP(name, ...) +1
#include "ops/ops.def"
#undef OP
    ;

std::string_view to_string(OpKind kind);
// Throws UsageError for a name that is no op.
OpKind parse_op_kind(std::string_view name);

}  // namespace plimsoll
