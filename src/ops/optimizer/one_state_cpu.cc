#include "ops/optimizer/one_state_kernels.h"
#include "ops/optimizer/optimizer_cpu.h"

namespace plimsoll {
namespace {

// make(P{}, G{}, S{}) for the types of the weight (or its master copy), gradient and state, which may be
// absent.
template <class Make>
BoundCall with_types(const CpuBinding& b, size_t state_output, size_t master, Make make) {
  const DType state = b.has_output(state_output) ? b.output_tensor(state_output).dtype : DType::f32;
  return with_update_types(b, master, [&](auto p, auto g) {
    return with_element_type(b, state, [&](auto s) { return make(p, g, s); });
  });
}

}  // namespace

BoundCall bind_lion(const CpuBinding& b) {
  using at = operand::lion;
  return with_types(b, at::m, at::master, [&](auto p, auto g, auto s) {
    using Args = Lion<decltype(p), decltype(g), decltype(s)>;
    return bind_update(
        b,
        Args{weight_update<decltype(p), decltype(g)>(b, at::master), b.op().attr_float("beta1"),
             b.op().attr_float("beta2"), updated_slice<decltype(s)>(b, at::m)},
        PLIMSOLL_PLAIN_KERNEL(b, lion, Args));
  });
}

BoundCall bind_sgd(const CpuBinding& b) {
  using at = operand::sgd;
  return with_types(b, at::momentum, at::master, [&](auto p, auto g, auto s) {
    using Args = Sgd<decltype(p), decltype(g), decltype(s)>;
    return bind_update(b,
                       Args{weight_update<decltype(p), decltype(g)>(b, at::master),
                            b.op().attr_float("momentum"), updated_slice<decltype(s)>(b, at::momentum)},
                       PLIMSOLL_PLAIN_KERNEL(b, sgd, Args));
  });
}

}  // namespace plimsoll
