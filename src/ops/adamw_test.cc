#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

// v must not be negative.
const Values kSquares(150, 0.25);

OpCase adamw(const std::string& name, const std::string& weight, const std::string& gradient,
             const std::string& state, bool master) {
  OpCase c;
  c.name = name;
  c.body =
      "tensor norm f64[2] metric\n"
      "tensor w.grad " +
      gradient +
      "[3,50] gradient\n"
      "tensor w " +
      weight +
      "[3,50] trainable\n"
      "tensor w.m " +
      state +
      "[3,50] state\n"
      "tensor w.v " +
      state + "[3,50] state\n";
  if (master) c.body += "tensor w.master f32[3,50] master\n";
  c.body += "w, w.m, w.v, " + std::string(master ? "w.master" : "-") +
            " = adamw(step, norm, w.grad) {beta1=0.9, beta2=0.99, eps=1e-08, stochastic=1, weight_decay=0.1} "
            "@w update\n";
  c.given = {{"norm", {2, 0.5}}, {"w.v", kSquares}};
  const bool is_bf16 = weight == "bf16" || state == "bf16";
  c.dtypes = {is_bf16 ? DType::bf16 : DType::f32};
  c.slack = is_bf16 ? 2 : 1;  // stochastic rounding is off by up to a whole unit
  return c;
}

[[maybe_unused]] const bool kRegistered = register_cases({
    adamw("adamw_fp32", "f32", "f32", "f32", false),
    adamw("adamw_bf16", "bf16", "f32", "f32", false),
    adamw("adamw_bf16_master", "bf16", "f32", "f32", true),
    adamw("adamw_bf16_pure", "bf16", "bf16", "bf16", false),
});

}  // namespace
}  // namespace plimsoll::harness
