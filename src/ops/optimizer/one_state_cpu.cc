#include "ops/optimizer/one_state_kernels.h"
#include "ops/optimizer/optimizer_cpu.h"

namespace plimsoll {
namespace {

// make(P{}, G{}, S{}) for the types of the weight (or its master copy, output 2), gradient and state.
template <class Make>
BoundCall with_types(const CpuBinding& b, Make make) {
  const DType state = b.op().has_output(1) ? b.output_tensor(1).dtype : DType::f32;
  return with_update_types(b, 2, [&](auto p, auto g) {
    return with_element_type(b, state, [&](auto s) { return make(p, g, s); });
  });
}

}  // namespace

BoundCall bind_lion(const CpuBinding& b) {
  return with_types(b, [&](auto p, auto g, auto s) {
    using Args = Lion<decltype(p), decltype(g), decltype(s)>;
    return bind_update(b,
                       Args{weight_update<decltype(p), decltype(g)>(b, 2), b.op().attr_float("beta1"),
                            b.op().attr_float("beta2"), updated_slice<decltype(s)>(b, 1)},
                       PLIMSOLL_PLAIN_KERNEL(b, lion, Args));
  });
}

BoundCall bind_sgd(const CpuBinding& b) {
  return with_types(b, [&](auto p, auto g, auto s) {
    using Args = Sgd<decltype(p), decltype(g), decltype(s)>;
    return bind_update(b,
                       Args{weight_update<decltype(p), decltype(g)>(b, 2), b.op().attr_float("momentum"),
                            updated_slice<decltype(s)>(b, 1)},
                       PLIMSOLL_PLAIN_KERNEL(b, sgd, Args));
  });
}

}  // namespace plimsoll
