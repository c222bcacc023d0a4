#include "harness/optimizer_cases.h"

namespace plimsoll::harness {
namespace {

// 600 elements: three blocks, the last one in part.
OpCase adamw8bit(const std::string& name, const std::string& weight, const std::string& gradient,
                 bool master) {
  return update_case({.name = name,
                      .op = "adamw8bit",
                      .attributes = "beta1=0.9, beta2=0.99, eps=1e-08, stochastic=1, weight_decay=0.1",
                      .shape = "4,150",
                      .weight = weight,
                      .gradient = gradient,
                      .master = master,
                      .states = {"m u8[4,150]", "v u8[4,150]", "m_scale f32[3]", "v_scale f32[3]"},
                      .given = {{"m", every_code(600)},
                                {"v", every_code(600)},
                                {"m_scale", {0.1, 0.5, 2.0}},
                                {"v_scale", {0.3, 1.0, 4.0}}}});
}

[[maybe_unused]] const bool kAdamw8bitCases = register_cases({
    adamw8bit("adamw8bit_fp32", "f32", "f32", false),
    adamw8bit("adamw8bit_bf16", "bf16", "bf16", false),
    adamw8bit("adamw8bit_bf16_master", "bf16", "f32", true),
});

}  // namespace
}  // namespace plimsoll::harness
