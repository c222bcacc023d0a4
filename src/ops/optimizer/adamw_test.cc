#include "harness/optimizer_cases.h"

namespace plimsoll::harness {
namespace {

// v must not be negative.
const Values kSquares(150, 0.25);

OpCase adamw(const std::string& name, const std::string& weight, const std::string& gradient,
             const std::string& state, bool master) {
  return update_case({.name = name,
                      .op = "adamw",
                      .attributes = "beta1=0.9, beta2=0.99, eps=1e-08, stochastic=1, weight_decay=0.1",
                      .weight = weight,
                      .gradient = gradient,
                      .master = master,
                      .states = {"w.m " + state + "[3,50]", "w.v " + state + "[3,50]"},
                      .given = {{"w.v", kSquares}}});
}

[[maybe_unused]] const bool kAdamwCases = register_cases({
    adamw("adamw_fp32", "f32", "f32", "f32", false),
    adamw("adamw_bf16", "bf16", "f32", "f32", false),
    adamw("adamw_bf16_master", "bf16", "f32", "f32", true),
    adamw("adamw_f16_master", "f16", "f32", "f32", true),
    adamw("adamw_bf16_pure", "bf16", "bf16", "bf16", false),
    // More than the blocks of a GPU take at a time.
    update_case({.name = "adamw_bf16_long",
                 .op = "adamw",
                 .attributes = "beta1=0.9, beta2=0.99, eps=1e-08, stochastic=1, weight_decay=0.1",
                 .shape = "50,700",
                 .weight = "bf16",
                 .gradient = "bf16",
                 .states = {"w.m bf16[50,700]", "w.v bf16[50,700]"},
                 .given = {{"w.v", Values(35000, 0.25)}}}),
});

}  // namespace
}  // namespace plimsoll::harness
