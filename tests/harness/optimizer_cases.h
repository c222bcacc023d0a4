// Harness cases of optimizers' ops: one weight, its gradient and its states in text.
#pragma once

#include <string>
#include <vector>

#include "harness/op_case.h"

namespace plimsoll::harness {

struct UpdateCase {
  std::string name;
  std::string op, attributes;  // "lion", "beta1=0.9, ..."
  std::string shape = "3,50";
  std::string weight = "f32", gradient = "f32";
  bool master = false;
  // Outputs between the weight and its master copy, in order: "m f32[3,50]"; "-" where there is none.
  std::vector<std::string> states = {};
  std::map<std::string, Values> given = {};
};

inline OpCase update_case(const UpdateCase& u) {
  OpCase c;
  c.name = u.name;
  c.body =
      "tensor norm f64[2] metric\n"
      "tensor w.grad " +
      u.gradient + "[" + u.shape +
      "] gradient\n"
      "tensor w " +
      u.weight + "[" + u.shape + "] trainable\n";
  std::string outputs = "w";
  bool is_bf16 = u.weight == "bf16";
  for (const std::string& state : u.states) {
    outputs += ", " + state.substr(0, state.find(' '));
    if (state != "-") c.body += "tensor " + state + " state\n";
    is_bf16 = is_bf16 || state.find(" bf16") != std::string::npos;
  }
  if (u.master) c.body += "tensor w.master f32[" + u.shape + "] master\n";
  c.body += outputs + ", " + (u.master ? "w.master" : "-") + " = " + u.op + "(step, norm, w.grad) {" +
            u.attributes + "} @w update\n";
  c.given = u.given;
  c.given["norm"] = {2, 0.5};
  c.dtypes = {is_bf16 ? DType::bf16 : u.weight == "f16" ? DType::f16 : DType::f32};
  c.slack = is_bf16 ? 2 : 1;  // stochastic rounding is off by up to a whole unit
  return c;
}

// 8-bit codes that use the whole map.
inline Values every_code(int64_t count) {
  Values codes;
  for (int64_t i = 0; i < count; ++i) codes.push_back(static_cast<double>(i * 37 % 256));
  return codes;
}

}  // namespace plimsoll::harness
