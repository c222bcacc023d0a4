// The rules, one object per op; each is defined in the file of its family.
#pragma once

#include "ops/rule.h"

namespace plimsoll {

#define OP(name) extern const OpRule name##_rule;
#include "ops/ops.def"
#undef OP

}  // namespace plimsoll
