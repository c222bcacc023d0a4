// pair_loss, class_loss and preference_loss with their gradients: a thread walks the sequences, which are
// few, in the CPU's own code. f64 functions are the compiler's: on a card their last bits are its.
#include "ops/gpu_dispatch.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

// Elements as loss code reads and writes them (ops/cpu_elements.h has the CPU's).
PL_BOTH double as_f64(float x) { return static_cast<double>(x); }
PL_BOTH double as_f64(gpu::bf16 x) { return static_cast<double>(gpu::to_float(x)); }
PL_BOTH double as_f64(gpu::f16 x) { return static_cast<double>(gpu::to_float(x)); }
PL_BOTH void set_rounded(float& to, double x) { to = static_cast<float>(x); }
PL_BOTH void set_rounded(gpu::bf16& to, double x) { to = gpu::rounded<gpu::bf16>(static_cast<float>(x)); }
PL_BOTH void set_rounded(gpu::f16& to, double x) { to = gpu::rounded<gpu::f16>(static_cast<float>(x)); }

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll

#include "ops/loss/preference_loss_math.h"
#include "ops/loss/sequence_loss_math.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

template <class T>
__global__ void __launch_bounds__(1) pairs(LossOperands<T> operands, double centering) {
  run_pairs(operands, centering);
}

template <class T>
__global__ void __launch_bounds__(1) classes(LossOperands<T> operands, ClassProblem problem) {
  gpu::require(has_classes(operands, problem), "class_loss: a class is out of range");
  run_classes(operands, problem);
}

__global__ void __launch_bounds__(1) preferences(PreferenceCall call) { call(); }

BoundCall bind_pairs(const GpuBinding& b) {
  using at = operand::pair_loss;
  return with_gpu_type(b, b.input_tensor(at::scores).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    return [operands = LossOperands<T>(b), centering = b.op().attr_float("centering"), &stream = b.stream()] {
      gpu::launch(stream, {1}, {1}, pairs<T>, operands, centering);
    };
  });
}

BoundCall bind_classes(const GpuBinding& b) {
  using at = operand::class_loss;
  return with_gpu_type(b, b.input_tensor(at::scores).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    return [operands = LossOperands<T>(b), problem = static_cast<ClassProblem>(b.op().attr_int("problem")),
            &stream = b.stream()] { gpu::launch(stream, {1}, {1}, classes<T>, operands, problem); };
  });
}

BoundCall bind_preferences(const GpuBinding& b) {
  return
      [call = PreferenceCall(b), &stream = b.stream()] { gpu::launch(stream, {1}, {1}, preferences, call); };
}

}  // namespace

BoundCall bind_gpu_pair_loss(const GpuBinding& b) { return bind_pairs(b); }
BoundCall bind_gpu_pair_loss_grad(const GpuBinding& b) { return bind_pairs(b); }
BoundCall bind_gpu_class_loss(const GpuBinding& b) { return bind_classes(b); }
BoundCall bind_gpu_class_loss_grad(const GpuBinding& b) { return bind_classes(b); }
BoundCall bind_gpu_preference_loss(const GpuBinding& b) { return bind_preferences(b); }
BoundCall bind_gpu_preference_loss_grad(const GpuBinding& b) { return bind_preferences(b); }

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
