#include "ops/cpu_dispatch.h"
#include "ops/cpu_elements.h"
#include "ops/loss/sequence_loss_math.h"

namespace plimsoll {
namespace {

BoundCall bind_pairs(const CpuBinding& b) {
  using at = operand::pair_loss;
  return with_number_type(b, b.input_tensor(at::scores).dtype, [&](auto zero) -> BoundCall {
    const LossOperands<decltype(zero)> operands(b);
    return [=, centering = b.op().attr_float("centering")] { run_pairs(operands, centering); };
  });
}

BoundCall bind_classes(const CpuBinding& b) {
  using at = operand::class_loss;
  return with_number_type(b, b.input_tensor(at::scores).dtype, [&](auto zero) -> BoundCall {
    const LossOperands<decltype(zero)> operands(b);
    return [=, problem = static_cast<ClassProblem>(b.op().attr_int("problem"))] {
      check_internal(has_classes(operands, problem), "class_loss: a class is out of range");
      run_classes(operands, problem);
    };
  });
}

}  // namespace

BoundCall bind_pair_loss(const CpuBinding& b) { return bind_pairs(b); }
BoundCall bind_pair_loss_grad(const CpuBinding& b) { return bind_pairs(b); }
BoundCall bind_class_loss(const CpuBinding& b) { return bind_classes(b); }
BoundCall bind_class_loss_grad(const CpuBinding& b) { return bind_classes(b); }

}  // namespace plimsoll
