#include "ops/cpu_dispatch.h"
#include "ops/loss/preference_loss_math.h"

namespace plimsoll {

BoundCall bind_preference_loss(const CpuBinding& b) { return PreferenceCall(b); }
BoundCall bind_preference_loss_grad(const CpuBinding& b) { return PreferenceCall(b); }

}  // namespace plimsoll
