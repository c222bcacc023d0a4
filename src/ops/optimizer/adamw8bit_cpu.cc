#include "ops/optimizer/adamw8bit_kernels.h"
#include "ops/optimizer/optimizer_cpu.h"

namespace plimsoll {
namespace {

CodedState coded_state(const CpuBinding& b, size_t codes, size_t scales, const DynamicMap& map) {
  return {&map, updated_slice<uint8_t>(b, codes), updated_slice<float>(b, scales, kStateBlock)};
}

}  // namespace

BoundCall bind_adamw8bit(const CpuBinding& b) {
  using at = operand::adamw8bit;
  return with_update_types(b, at::master, [&](auto p, auto g) {
    using Args = AdamW8bit<decltype(p), decltype(g)>;
    return bind_update(b,
                       Args{weight_update<decltype(p), decltype(g)>(b, at::master),
                            b.op().attr_float("beta1"), b.op().attr_float("beta2"), b.op().attr_float("eps"),
                            coded_state(b, at::m, at::m_scale, signed_dynamic_map()),
                            coded_state(b, at::v, at::v_scale, unsigned_dynamic_map())},
                       PLIMSOLL_PLAIN_KERNEL(b, adamw8bit, Args));
  });
}

}  // namespace plimsoll
