// The rules, one object per op; each is defined in the file of its family.
#pragma once

#include "ops/operands.h"
#include "ops/rule.h"

namespace plimsoll {

#define OP(name, ...) extern const OpRule name##_rule;
#include "ops/ops.def"
#undef OP

// On a GPU: of a gradient of x one launch, of one of a weight parts and their sum. `at`: an op's operands.
template <class at>
int64_t launches_of_gradients(const Graph&, const Op& op, bool) {
  return (op.has_output(at::d_x) ? 1 : 0) + (op.has_output(at::d_weight) ? 2 : 0);
}

}  // namespace plimsoll
